//! A directory of 2,000 files, as the NAS article lists one: made, listed by name alone, listed
//! with each file's status, removed. On a share that is round trips, not storage.

use super::calls::{Call, Calls, Kind, span};
use super::{Figure, Ran, significant};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Instant;

/// Those of the article.
pub const FILES: usize = 2000;

/// # Errors
/// Those of the calls.
pub fn run(directory: &Path, files: usize, calls: &mut Calls) -> io::Result<Ran> {
    let directory = directory.join("listing");
    fs::create_dir(&directory)?;
    let timed = |calls: &mut Calls, step: &dyn Fn(&mut Calls) -> io::Result<usize>| {
        let start = Instant::now();
        step(calls).map(|_| start.elapsed().as_secs_f64())
    };
    let made = timed(calls, &|calls| make(&directory, files, calls))?;
    let named = timed(calls, &|calls| list(&directory, false, files, calls))?;
    let with_status = timed(calls, &|calls| list(&directory, true, files, calls))?;
    let removed = timed(calls, &|calls| remove(&directory, files, calls))?;
    fs::remove_dir(&directory)?;
    let each = |seconds: f64| 1e3 * seconds / files as f64;
    let words = format!(
        "{files} files: listed in {}, with status in {}",
        span(named),
        span(with_status)
    );
    Ok(Ran {
        own: words,
        figure: Figure::new("listing", each(with_status), "ms an entry"),
        beside: vec![
            format!(
                "{} ms an entry by name, {} with status",
                significant(each(named), 3),
                significant(each(with_status), 3)
            ),
            format!("made in {}, removed in {}", span(made), span(removed)),
        ],
    })
}

fn make(directory: &Path, files: usize, calls: &mut Calls) -> io::Result<usize> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    for n in 0..files {
        let path = directory.join(format!("file{n:04}"));
        calls.make(Call::of(Kind::Open, n), || options.open(&path).map(drop))?;
    }
    Ok(files)
}

fn list(directory: &Path, status: bool, files: usize, calls: &mut Calls) -> io::Result<usize> {
    let mut seen = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if status {
            calls.make(Call::of(Kind::Stat, seen), || entry.metadata().map(drop))?;
        }
        seen += 1;
    }
    match seen == files {
        true => Ok(seen),
        false => Err(io::Error::other(format!(
            "{seen} of {files} files are listed"
        ))),
    }
}

fn remove(directory: &Path, files: usize, calls: &mut Calls) -> io::Result<usize> {
    for n in 0..files {
        let path = directory.join(format!("file{n:04}"));
        calls.make(Call::of(Kind::Unlink, n), || fs::remove_file(&path))?;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_made_asked_for_and_removed_once() {
        let directory = std::env::temp_dir().join(format!("listing-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mut calls = Calls::new(Default::default());
        run(&directory, FILES, &mut calls).unwrap();
        let counts = [Kind::Open, Kind::Stat, Kind::Unlink].map(|kind| calls.count(kind));
        assert_eq!(counts, [2000; 3]);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        fs::remove_dir(&directory).unwrap();
    }
}
