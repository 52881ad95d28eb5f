//! 4 KiB overwrites of the scratch file in random order, each block once: each write durable,
//! or flushed once at the end.

use super::io::Meter;
use super::job::Context;
use super::pattern::{self, BLOCK, Random};
use super::scratch::Scratch;
use super::write::write_all;
use super::{Measurement, Probe, Stop};
use crate::sys::Buffer;
use std::time::Instant;

/// Writes are taken from the budget in groups: the parent need not hear of each 4 KiB.
const GROUP: u64 = 64;

pub fn run(
    context: &mut Context,
    scratch: &mut Scratch,
    probe: Probe,
) -> Result<Measurement, Stop> {
    let durable = probe == Probe::RandomWriteDurable;
    let mut buffer = Buffer::new(BLOCK).map_err(|e| context.stop(probe, &e, "buffer"))?;
    let until = context.budget.until(context.job.random_write_seconds());
    let operations = context.job.random_write_operations().min(scratch.blocks());
    let mut random = Random::new(context.job.seed ^ probe as u64);
    let mut meter = Meter::new(probe);
    for operation in 0..operations {
        if operation > 0 && Instant::now() >= until {
            break;
        }
        if operation % GROUP == 0
            && !context.spend(BLOCK as u64 * GROUP.min(operations - operation))
        {
            break;
        }
        let index = random.below(scratch.blocks());
        let generation = scratch.generations[index as usize].saturating_add(1);
        pattern::fill(&mut buffer, context.job.seed, index, generation);
        let write = || {
            write_all(scratch, &buffer, index * BLOCK as u64)?;
            if durable {
                scratch.file.sync_data()
            } else {
                Ok(())
            }
        };
        meter
            .time(BLOCK as u64, write)
            .map_err(|e| context.stop(probe, &e, "overwrite the scratch file"))?;
        scratch.generations[index as usize] = generation;
    }
    meter
        .flush(|| scratch.file.sync_data())
        .map_err(|e| context.stop(probe, &e, "flush the scratch file"))?;
    Ok(meter.measurement(1, scratch.direct))
}
