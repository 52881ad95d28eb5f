//! 4 KiB reads across the whole disk: one at a time, then 32 really in flight.

use super::io::{Meter, Pace, read_exact};
use super::job::Context;
use super::pattern::Random;
use super::sequential_read::bad_read;
use super::{Measurement, Probe, Stop};
use crate::sys::{Buffer, Direction, IoEvent, Queue};
use std::time::{Duration, Instant};

/// Operations in flight of the queued probe, as CrystalDiskMark, fio's users and Raspberry Pi's
/// own card test have it.
pub const DEPTH: usize = 32;

/// One at a time.
pub fn run(context: &mut Context) -> Result<Measurement, Stop> {
    let probe = Probe::RandomRead;
    let block = context.job.block() as usize;
    let mut buffer = Buffer::new(block).map_err(|e| context.stop(probe, &e, "buffer"))?;
    let mut random = Random::new(context.job.seed);
    let blocks = (context.job.bytes / block as u64).max(1);
    let until = context.budget.until(context.job.plan.random_seconds);
    let mut meter = Meter::new(probe);
    while Instant::now() < until {
        let offset = random.below(blocks) * block as u64;
        if let Err(error) = meter.time(block as u64, || {
            read_exact(&context.disk, &mut buffer, offset)
        }) {
            return Err(bad_read(context, probe, &mut buffer, offset, &error));
        }
    }
    context.random_read_median = meter.median();
    Ok(meter.measurement(1, true))
}

/// The first read of all, apart from the rest: a disk that has to spin up shows it here.
pub fn first_operation(context: &mut Context) -> Result<Duration, Stop> {
    let block = context.job.block() as usize;
    let mut buffer =
        Buffer::new(block).map_err(|e| context.stop(Probe::RandomRead, &e, "buffer"))?;
    let blocks = (context.job.bytes / block as u64).max(1);
    let offset = Random::new(!context.job.seed).below(blocks) * block as u64;
    let start = Instant::now();
    match read_exact(&context.disk, &mut buffer, offset) {
        Ok(()) => Ok(start.elapsed()),
        Err(error) => Err(bad_read(
            context,
            Probe::RandomRead,
            &mut buffer,
            offset,
            &error,
        )),
    }
}

/// Many in flight, fewer on a medium so slow that 32 would not end within the probe's time.
pub fn run_queued(context: &mut Context) -> Result<Measurement, Stop> {
    let probe = Probe::RandomReadQueued;
    let seconds = context.job.plan.random_seconds;
    let fits = seconds / context.random_read_median.as_secs_f64().max(1e-9);
    let depth = (fits as usize).clamp(1, DEPTH);
    let block = context.job.block() as usize;
    let mut queue = Buffer::new(depth * block)
        .and_then(|buffer| Queue::new(&context.disk, Direction::Read, block, buffer))
        .map_err(|e| context.stop(probe, &e, "Linux AIO"))?;
    let mut offsets = Offsets {
        random: Random::new(context.job.seed ^ 1),
        blocks: (context.job.bytes / block as u64).max(1),
        block: block as u64,
        at: [0; DEPTH],
    };
    let until = context.budget.until(seconds);
    let mut meter = Meter::new(probe);
    while Instant::now() < until {
        if let Err((error, offset)) = burst(&mut queue, depth, &mut offsets, until, &mut meter) {
            drop(queue);
            let mut buffer = Buffer::new(block).map_err(|e| context.stop(probe, &e, "buffer"))?;
            return Err(bad_read(context, probe, &mut buffer, offset, &error));
        }
        Pace::new().pause();
    }
    Ok(meter.measurement(depth as u32, true))
}

/// Where each slot reads.
struct Offsets {
    random: Random,
    blocks: u64,
    block: u64,
    at: [u64; DEPTH],
}

impl Offsets {
    fn next(&mut self, slot: usize) -> (usize, u64) {
        self.at[slot] = self.random.below(self.blocks) * self.block;
        (slot, self.at[slot])
    }
}

/// Keeps `depth` reads in flight until a pause is due or the time is up, then lets them end.
fn burst(
    queue: &mut Queue,
    depth: usize,
    offsets: &mut Offsets,
    until: Instant,
    meter: &mut Meter,
) -> Result<(), (std::io::Error, u64)> {
    let mut reads: heapless::Vec<(usize, u64), DEPTH> =
        (0..depth).map(|slot| offsets.next(slot)).collect();
    let mut started = [Instant::now(); DEPTH];
    let mut events = [IoEvent::default(); DEPTH];
    let mut pace = Pace::new();
    let mut last = started[0];
    let mut last_due = false;
    queue.submit(&reads).map_err(|e| (e, 0))?;
    while queue.in_flight() > 0 {
        let got = match queue.wait(&mut events[..depth]) {
            Ok(got) => got,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err((error, 0)),
        };
        let now = Instant::now();
        reads.clear();
        last_due = last_due || pace.due(now - last) || now >= until;
        for event in &events[..got] {
            let slot = (event.slot as usize).min(DEPTH - 1);
            if event.result != offsets.block as i64 {
                let error = match i32::try_from(-event.result) {
                    Ok(errno) if errno > 0 => std::io::Error::from_raw_os_error(errno),
                    _ => std::io::Error::other("short read"),
                };
                return Err((error, offsets.at[slot]));
            }
            meter.latency(now - started[slot], offsets.block);
            if !last_due {
                started[slot] = now;
                // The capacity is the number of slots, so this cannot fail.
                let _ = reads.push(offsets.next(slot));
            }
        }
        meter.worked(got as u64, now - last);
        last = now;
        if !reads.is_empty() {
            queue
                .submit(&reads)
                .map_err(|e| (e, offsets.at[reads[0].0]))?;
        }
    }
    Ok(())
}
