//! 4 KiB overwrites of the scratch file at random: each write durable,
//! or flushed once at the end.

use super::io::{Counters, Meter};
use super::job::Context;
use super::pattern::{self, BLOCK, Random};
use super::scratch::Scratch;
use super::write::write_all;
use super::{Measurement, Probe, Reason, Stop};
use crate::sys::Buffer;
use std::time::Instant;

/// Writes are taken from the budget in groups: the parent need not hear of each 4 KiB.
const GROUP: u64 = 16;

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
    let mut group = Group {
        before: counted(context),
        bytes: 0,
        // The flushed writes leave enough for those that follow.
        kept: match durable && context.job.volatile_cache {
            true => operations * BLOCK as u64,
            false => 0,
        },
    };
    if context.budget.left() < BLOCK as u64 * GROUP.min(operations) {
        let detail = "the bytes that this profile may write were spent before";
        return Err(Stop::NotMeasured(Reason::Other, detail.into()));
    }
    for operation in 0..operations {
        if operation > 0 && Instant::now() >= until {
            break;
        }
        if operation % GROUP == 0
            && !spend_group(context, scratch, &mut group, operations - operation)
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

/// The writes since the budget was last asked.
struct Group {
    /// What the disk had counted before, bytes.
    before: u64,
    bytes: u64,
    /// What must be left of the budget, bytes.
    kept: u64,
}

fn counted(context: &Context) -> u64 {
    Counters::read(&context.job.sys.join("stat")).map_or(0, |counters| counters.written)
}

/// Takes the next group from the budget, and what the file system wrote besides the last one.
/// What is beyond that was written by others (a new ext4 fills its tables for a minute), and must
/// not end our test. Ends the probe before the budget would be exceeded.
fn spend_group(
    context: &mut Context,
    scratch: &Scratch,
    group: &mut Group,
    operations_left: u64,
) -> bool {
    let now = counted(context);
    let besides = now.saturating_sub(group.before).saturating_sub(group.bytes);
    let extra = besides.min(scratch.file_systems_own() * group.bytes);
    group.before = now;
    group.bytes = BLOCK as u64 * GROUP.min(operations_left);
    let settled = extra == 0 || context.spend(extra);
    let wanted = group.bytes + extra + group.kept;
    settled && context.budget.left() >= wanted && context.spend(group.bytes)
}
