//! Everything written is read twice past every cache and compared with its stamp.

use super::io::{MIB, Meter, read_exact};
use super::job::Context;
use super::pattern::{self, BLOCK, Random, Seen};
use super::scratch::Scratch;
use super::{Fault, FaultKind, Measurement, Message, Probe, Stop};
use crate::sys::Buffer;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

/// Bad blocks that are remembered for the second pass; more are only counted.
const REMEMBERED: usize = 64;

/// Bad blocks of one pass.
#[derive(Default)]
struct Bad {
    blocks: heapless::Vec<u64, REMEMBERED>,
    lost: u64,
    changed: u64,
    example: String,
}

/// Reads all blocks in order, then all again in random order; tells a fault where a block was
/// bad in both passes or differed between them. The time of the whole run ends it early.
pub fn run(context: &mut Context, scratch: &mut Scratch) -> Result<Measurement, Stop> {
    let probe = Probe::ReadBack;
    let mut buffer = Buffer::new(MIB as usize).map_err(|e| context.stop(probe, &e, "buffer"))?;
    let mut meter = Meter::new(probe);
    let mut order: Vec<u64> = (0..scratch.bytes() / MIB).collect();
    let mut first = Bad::default();
    if let Err(stop) = pass(
        context,
        scratch,
        &mut meter,
        &mut buffer,
        &order,
        &mut first,
    ) {
        // What was bad before the disk failed is not forgotten with it.
        tell(context, &first, &Bad::default());
        return Err(stop);
    }
    let mut random = Random::new(context.job.seed ^ 2);
    for n in (1..order.len()).rev() {
        order.swap(n, random.below(n as u64 + 1) as usize);
    }
    let mut second = Bad::default();
    let ended = pass(
        context,
        scratch,
        &mut meter,
        &mut buffer,
        &order,
        &mut second,
    );
    tell(context, &first, &second);
    ended.map(|()| meter.measurement(1, scratch.direct))
}

fn pass(
    context: &mut Context,
    scratch: &mut Scratch,
    meter: &mut Meter,
    buffer: &mut Buffer,
    order: &[u64],
    bad: &mut Bad,
) -> Result<(), Stop> {
    let probe = Probe::ReadBack;
    // Where a page may be cached (no direct I/O) this drops it; it is clean after the flush.
    posix_fadvise(&scratch.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
        .map_err(|e| context.stop(probe, &e.into(), "drop the scratch file's cache"))?;
    for &mib in order {
        if context.budget.time_is_up() {
            break;
        }
        let offset = mib * MIB;
        if let Err(error) = meter.time(MIB, || read_exact(&scratch.file, buffer, offset)) {
            let what = format!("read the scratch file back at {offset}");
            let again = read_exact(&scratch.file, buffer, offset);
            let mut stopped = context.stop(probe, &error, &what);
            if let Stop::Fault(fault) = &mut stopped {
                fault.confirmed = again.is_err();
            }
            return Err(stopped);
        }
        for (n, block) in buffer.chunks_exact(BLOCK).enumerate() {
            let index = offset / BLOCK as u64 + n as u64;
            let generation = scratch.generations[index as usize];
            bad.note(
                index,
                pattern::compare(block, context.job.seed, index, generation),
            );
        }
    }
    Ok(())
}

impl Bad {
    fn note(&mut self, index: u64, seen: Seen) {
        let example = match seen {
            Seen::Same => return,
            Seen::Lost(instead) => {
                self.lost += 1;
                format!(
                    "{instead} instead of what was written, at 4 KiB block {index} of the scratch file"
                )
            }
            Seen::Changed(bits) => {
                self.changed += 1;
                format!("{bits} of 32768 bits changed in 4 KiB block {index} of the scratch file")
            }
        };
        if self.blocks.is_empty() {
            self.example = example;
        }
        // More than fit are counted only.
        let _ = self.blocks.push(index);
    }
}

fn tell(context: &mut Context, first: &Bad, second: &Bad) {
    let worse = if second.lost + second.changed > first.lost + first.changed {
        second
    } else {
        first
    };
    if worse.blocks.is_empty() {
        return;
    }
    let confirmed = first
        .blocks
        .iter()
        .any(|block| second.blocks.contains(block));
    let detail = if confirmed {
        worse.example.clone()
    } else {
        format!("{}; not so in both passes", worse.example)
    };
    for (kind, count) in [
        (FaultKind::DataLost, worse.lost),
        (FaultKind::DataChanged, worse.changed),
    ] {
        if count > 0 {
            (context.tell)(Message::Fault(Fault {
                probe: Probe::ReadBack,
                kind,
                sector: None,
                count,
                confirmed,
                detail: detail.clone(),
            }));
        }
    }
}
