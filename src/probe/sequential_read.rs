//! 1 MiB reads at the start, the middle and the end of the whole disk.

use super::io::{MIB, Meter, first_bad_sector, read_exact, stop};
use super::job::Context;
use super::{Measurement, Probe, Stop};
use crate::sys::Buffer;
use std::time::Instant;

pub fn run(context: &mut Context) -> Result<Measurement, Stop> {
    let mut meter = Meter::new(Probe::SequentialRead);
    let mut places = Vec::new();
    let size = context.job.bytes;
    for place in 0..3 {
        let start = (size / 2 * place) / MIB * MIB;
        let stop_at = match place {
            // The last place is where a read of this time ends at the end of the disk, as far
            // as the first place's speed tells.
            2 => size.saturating_sub(meter.bytes() / 2).max(size / 2),
            _ => start,
        };
        let start = if place == 2 {
            stop_at / MIB * MIB
        } else {
            start
        };
        let (bytes, busy) = (meter.bytes(), meter.busy());
        read_from(context, &mut meter, start)?;
        let seconds = (meter.busy() - busy).as_secs_f64();
        if meter.bytes() > bytes {
            places.push((meter.bytes() - bytes) as f64 / 1e6 / seconds.max(1e-9));
        }
    }
    let mut measurement = meter.measurement(1, true);
    measurement.places = places;
    Ok(measurement)
}

/// Reads on from `start` for this place's time, or to the end of the disk.
fn read_from(context: &mut Context, meter: &mut Meter, start: u64) -> Result<(), Stop> {
    let until = context.budget.until(context.job.plan.place_seconds);
    let mut buffer =
        Buffer::new(MIB as usize).map_err(|e| context.stop(Probe::SequentialRead, &e, "buffer"))?;
    let mut offset = start;
    let size = context.job.bytes / u64::from(context.job.block()) * u64::from(context.job.block());
    while offset < size && Instant::now() < until {
        let length = MIB.min(size - offset) as usize;
        let part = &mut buffer[..length];
        if let Err(error) = meter.time(length as u64, || read_exact(&context.disk, part, offset)) {
            return Err(bad_read(
                context,
                Probe::SequentialRead,
                part,
                offset,
                &error,
            ));
        }
        offset += length as u64;
    }
    Ok(())
}

/// A failed read of the disk itself, with the sector where a second try fails too.
pub fn bad_read(
    context: &Context,
    probe: Probe,
    part: &mut [u8],
    offset: u64,
    error: &std::io::Error,
) -> Stop {
    let what = format!(
        "read {} at sector {}",
        context.job.device.display(),
        offset / 512
    );
    let mut stopped = stop(probe, &context.job.sys, error, &what);
    if let (true, Stop::Fault(fault)) = (context.whole_disk, &mut stopped) {
        // The fault counts more than its exact place: it has to be told well before the deadline.
        let end = context.budget.until(1.0);
        let block = context.job.logical_block as usize;
        let sector = first_bad_sector(&context.disk, part, offset, block, end);
        fault.confirmed = sector.is_some();
        fault.sector = Some(sector.unwrap_or(offset / 512));
        // A disk that vanished meanwhile has no bad sector.
        if !context.job.sys.exists() {
            return stop(probe, &context.job.sys, error, &what);
        }
    }
    stopped
}
