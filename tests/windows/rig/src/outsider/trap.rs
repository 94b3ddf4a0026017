//! Instructions that a kernel's code may execute and a process may not: what they would do there, and what they tell.

use crate::ntos::irql;
use crate::ntos::misc::system_time;

/// `KUSER_SHARED_DATA.SystemTime`, in the page that every kernel has there.
const SYSTEM_TIME: i64 = 0xFFFF_F780_0000_0014_u64.cast_signed();

/// What an instruction at which a thread of the image or of a consumer has stopped asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Trap {
    /// It is done, and the thread goes on behind it.
    Done,
    /// An assertion of the driver does not hold.
    Assertion,
    /// `__fastfail`: the driver's own memory is damaged.
    FailFast,
    /// Anything else.
    Fault,
}

/// Looks at the instruction, and does what can be done. The code is that of a mapped image.
///
/// # Safety
/// The registers are those of a thread that stopped at an instruction of a mapped image.
pub(crate) unsafe fn emulate(registers: &mut [i64]) -> Trap {
    let rip = registers[libc::REG_RIP as usize] as *const u8;
    let code = std::slice::from_raw_parts(rip, 4);
    let rax = &mut registers[libc::REG_RAX as usize];
    let len = match code {
        // mov rax, cr8
        [0x44, 0x0F, 0x20, 0xC0] => {
            *rax = irql::current().into();
            4
        }
        // mov rax, [rax]
        [0x48, 0x8B, 0x00, _] if *rax == SYSTEM_TIME => {
            *rax = system_time().cast_signed();
            3
        }
        // int 2Ch, int 29h
        [0xCD, 0x2C, ..] => return Trap::Assertion,
        [0xCD, 0x29, ..] => return Trap::FailFast,
        _ => return Trap::Fault,
    };
    registers[libc::REG_RIP as usize] += len;
    Trap::Done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers_at(code: &[u8]) -> [i64; 23] {
        let mut registers = [0; 23];
        registers[libc::REG_RIP as usize] = code.as_ptr() as i64;
        registers
    }

    #[test]
    fn what_only_a_kernel_may_do_is_done() {
        let read_irql = [0x44, 0x0F, 0x20, 0xC0];
        let mut registers = registers_at(&read_irql);
        let trap = irql::run_at(irql::DISPATCH, "a test", || unsafe { emulate(&mut registers) });
        assert_eq!((trap, registers[libc::REG_RAX as usize]), (Trap::Done, 2));
        assert_eq!(registers[libc::REG_RIP as usize], read_irql.as_ptr() as i64 + 4);

        let read_time = [0x48, 0x8B, 0x00, 0x90];
        let mut registers = registers_at(&read_time);
        registers[libc::REG_RAX as usize] = SYSTEM_TIME;
        let before = system_time().cast_signed();
        assert_eq!(unsafe { emulate(&mut registers) }, Trap::Done);
        let read = registers[libc::REG_RAX as usize];
        assert!((before..=system_time().cast_signed()).contains(&read), "{read}");
        assert_eq!(registers[libc::REG_RIP as usize], read_time.as_ptr() as i64 + 3);
    }

    #[test]
    fn all_else_is_a_fault() {
        let elsewhere = [0x48, 0x8B, 0x00, 0x90];
        let cases = [
            ([0xCD, 0x2C, 0x90, 0x90], Trap::Assertion),
            ([0xCD, 0x29, 0x90, 0x90], Trap::FailFast),
            (elsewhere, Trap::Fault),
            ([0x90; 4], Trap::Fault),
        ];
        for (code, wanted) in cases {
            let mut registers = registers_at(&code);
            let before = registers;
            assert_eq!(unsafe { emulate(&mut registers) }, wanted);
            assert_eq!(registers, before);
        }
    }
}
