//! An NVMe over RDMA host: connects to a target, identifies it, writes random data, reads them back and compares. The
//! data of the namespace are lost.
//!
//! ```text
//! cargo run --release -p ndk-consumer --example nvme-host -- loopback     # with the target in this process
//! cargo run --release -p ndk-consumer --example nvme-host -- connect 10.0.0.2 --edge tap:rdma0 --address 10.0.0.1 -n NQN
//! ```

mod cli;
mod data;
mod nvme;

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::{Parser, Subcommand};
use data::random;
use ndk_consumer::{Buffer, Host, pair};
use nvme::host::{Controller, Queue, TRANSFER_MAX};
use nvme::target::Target;
use nvme::wire::BLOCK;

/// Write to a namespace by NVMe over RDMA, read it back and compare.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring a target along, joined in memory
    Loopback(Work),
    /// Use the target at an address
    Connect {
        /// Address of the target
        target: IpAddr,
        #[command(flatten)]
        host: Box<cli::HostArgs>,
        #[command(flatten)]
        work: Work,
    },
}

#[derive(clap::Args, Debug)]
struct Work {
    /// Port of the target
    #[arg(short, long, default_value_t = 4420)]
    port: u16,
    /// Name of the subsystem
    #[arg(short = 'n', long, default_value = "nqn.2026-11.ndkrocev2:disk", value_name = "NQN")]
    subsystem: String,
    /// I/O queues
    #[arg(short, long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    queues: u16,
    /// MiB that each queue writes, each behind those of the queue before
    #[arg(long, default_value_t = 4, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1024))]
    size: u64,
    /// Seed of the data
    #[arg(long, default_value_t = 1)]
    data: u64,
}

fn main() -> ExitCode {
    cli::end(run(Args::parse()))
}

fn run(args: Args) -> Result<(), Box<dyn Error>> {
    match args.command {
        Command::Loopback(work) => loopback(&work),
        Command::Connect { target, host, work } => {
            work.over(&host.open()?, SocketAddr::new(target, work.port))
        }
    }
}

fn loopback(work: &Work) -> Result<(), Box<dyn Error>> {
    let [host, other] = pair()?;
    let stop = AtomicBool::new(false);
    let len = (work.size as usize * usize::from(work.queues)) << 20;
    let target = Target::new(&other, &work.subsystem, len, &stop)?;
    let listener = other.listen(work.port)?;
    let address = listener.local_address()?;
    std::thread::scope(|scope| {
        scope.spawn(|| target.serve(&listener));
        let worked = work.over(&host, address);
        stop.store(true, Ordering::Relaxed);
        worked
    })
}

impl Work {
    /// Writes and reads by all queues at once, each over its own part of the disk.
    fn over(&self, host: &Host, target: SocketAddr) -> Result<(), Box<dyn Error>> {
        let mut controller = Controller::connect(host, target, &self.subsystem)?;
        let model = String::from_utf8_lossy(&controller.identity.model).trim().to_string();
        let namespace = controller.namespace()?;
        let blocks = namespace.blocks[0].get();
        println!("{model}, NVMe {}, {blocks} blocks", version(controller.identity.version.get()));
        if namespace.block_shift != 9 {
            return Err("blocks of another size than 512 bytes".into());
        }
        let len = (self.size as usize) << 20;
        let mut queues = controller.queues(host, target, self.queues)?;
        if blocks < (queues.len() * len / BLOCK) as u64 {
            return Err("the disk is too small for so many queues and MiB".into());
        }
        let start = Instant::now();
        self.all_at_once(&mut queues, len)?;
        let (count, time) = (queues.len(), start.elapsed());
        queues.into_iter().try_for_each(Queue::disconnect)?;
        controller.shut_down()?;
        println!("{count} queues wrote and read {} MiB each, all equal, in {time:.1?}", self.size);
        Ok(())
    }

    fn all_at_once(&self, queues: &mut [Queue], len: usize) -> Result<(), String> {
        std::thread::scope(|scope| {
            let work = |(place, queue)| {
                let first = (place * len / BLOCK) as u64;
                scope.spawn(move || write_and_read(queue, first, len, self.data + place as u64))
            };
            let running: Vec<_> = queues.iter_mut().enumerate().map(work).collect();
            running.into_iter().try_for_each(|run| run.join().map_err(|_| "a queue panicked")?)
        })
    }
}

/// By commands of several sizes, the smallest of which carry their data along.
fn write_and_read(queue: &mut Queue, first: u64, len: usize, seed: u64) -> Result<(), String> {
    for (round, size) in [4096, 65_536, TRANSFER_MAX].into_iter().enumerate() {
        let bytes = random(len, seed << 8 | round as u64);
        let failed = |error: Box<dyn Error>| format!("commands of {size} bytes: {error}");
        queue.write(first, &Arc::new(Buffer::from(bytes.as_slice())), size).map_err(failed)?;
        let back = Arc::new(Buffer::new(len));
        queue.read(first, &back, size).map_err(failed)?;
        let back = back.to_vec(0..len);
        if let Some(place) = (0..len).find(|place| bytes[*place] != back[*place]) {
            let block = first + (place / BLOCK) as u64;
            return Err(format!("commands of {size} bytes: block {block} has other data"));
        }
    }
    Ok(())
}

fn version(version: u32) -> String {
    format!("{}.{}.{}", version >> 16, version >> 8 & 0xff, version & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_write_and_compare_in_one_process() {
        run(Args::parse_from("nvme-host loopback --size 2 --queues 3 --port 7".split(' ')))
            .unwrap();
    }

    #[test]
    fn a_disk_that_is_too_small_is_refused() {
        let work = |size: &str| Args::parse_from(["nvme-host", "loopback", "--size", size]).command;
        let (Command::Loopback(small), Command::Loopback(large)) = (work("1"), work("8")) else {
            panic!("loopback")
        };
        let [host, other] = pair().unwrap();
        let stop = AtomicBool::new(false);
        let target = Target::new(&other, &small.subsystem, 2 << 20, &stop).unwrap();
        let listener = other.listen(small.port).unwrap();
        let address = listener.local_address().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| target.serve(&listener));
            let ends =
                [&small, &large].map(|work| work.over(&host, address).map_err(|e| e.to_string()));
            stop.store(true, Ordering::Relaxed);
            let refused = "the disk is too small for so many queues and MiB";
            assert_eq!(ends, [Ok(()), Err(refused.to_string())]);
        });
    }
}
