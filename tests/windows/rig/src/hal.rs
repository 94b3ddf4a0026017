//! The stand-in for hal.dll. Newer kernels have its functions, too; that of Windows 10 1809 has not.

use crate::ntos::misc::counter;

exports! { "hal.dll":
    fn KeQueryPerformanceCounter(frequency: *mut i64) -> i64 {
        if !frequency.is_null() { frequency.write(10_000_000); }
        counter()
    }
}
