//! Durable write: a new file in 1 MiB writes of incompressible data, flushed inside the timer.

use super::io::{MIB, Meter};
use super::job::Context;
use super::pattern::{self, BLOCK};
use super::scratch::Scratch;
use super::{Measurement, Message, Probe, Stop};
use crate::sys::Buffer;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Blocks of one write.
const BLOCKS: u64 = MIB / BLOCK as u64;

/// Fills `scratch` up to `bytes`, or to the end of the time or the budget; every block becomes
/// generation 1.
pub fn run(context: &mut Context, scratch: &mut Scratch, bytes: u64) -> Result<Measurement, Stop> {
    let probe = Probe::DurableWrite;
    scratch
        .reserve(bytes)
        .map_err(|e| context.stop(probe, &e, "allocate the scratch file"))?;
    let mut buffer = Buffer::new(MIB as usize).map_err(|e| context.stop(probe, &e, "buffer"))?;
    let until = context.budget.until(context.job.plan.write_seconds);
    let mut meter = Meter::new(probe);
    for mib in 0..bytes / MIB {
        // One write at least, or nothing could be said at all.
        if mib > 0 && Instant::now() >= until || !context.spend(MIB) {
            break;
        }
        for (n, block) in buffer.chunks_exact_mut(BLOCK).enumerate() {
            pattern::fill(block, context.job.seed, mib * BLOCKS + n as u64, 1);
        }
        let write = || {
            write_all(scratch, &buffer, mib * MIB)?;
            if scratch.direct {
                Ok(())
            } else {
                scratch.file.sync_data()
            }
        };
        meter
            .time(MIB, write)
            .map_err(|e| context.stop(probe, &e, "write the scratch file"))?;
        scratch.generations.resize(((mib + 1) * BLOCKS) as usize, 1);
    }
    meter
        .flush(|| scratch.file.sync_data())
        .map_err(|e| context.stop(probe, &e, "flush the scratch file"))?;
    Ok(meter.measurement(1, scratch.direct))
}

/// Writes all of `data` at `offset` of the scratch file.
pub fn write_all(scratch: &Scratch, data: &[u8], offset: u64) -> io::Result<()> {
    scratch.file.write_all_at(data, offset)
}

impl Context<'_> {
    /// Takes `bytes` from the budget and tells the parent before they are written, so that the
    /// account holds even where this process is killed.
    pub fn spend(&mut self, bytes: u64) -> bool {
        let granted = self.budget.spend(bytes);
        if granted {
            let written = self.budget.written();
            (self.tell)(Message::Wrote(written));
        }
        granted
    }
}
