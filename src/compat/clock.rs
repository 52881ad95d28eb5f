//! The processor's clock at its highest for the time of a test, as the article on SD cards had it.

use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Puts every governor back when it goes, also after a signal.
pub struct Pinned {
    before: Vec<(PathBuf, String)>,
}

impl Pinned {
    /// Sets the governor `performance` on every processor under `root`.
    /// # Errors
    /// Where there is no cpufreq, or it cannot be set; what was set is put back then.
    pub fn new(root: &Path) -> Result<Self> {
        let cpus = root.join("sys/devices/system/cpu");
        let entries = fs::read_dir(&cpus).map_err(|e| Error::new("read", &cpus, e))?;
        // All are read before any is set: processors of one policy share one file.
        let governor = |entry: fs::DirEntry| {
            let path = entry.path().join("cpufreq/scaling_governor");
            let before = fs::read_to_string(&path).ok()?;
            Some((path, before.trim().to_string()))
        };
        let pinned = Self {
            before: entries.flatten().filter_map(governor).collect(),
        };
        for (path, _) in &pinned.before {
            fs::write(path, "performance").map_err(|e| Error::new("write", path, e))?;
        }
        match pinned.before.is_empty() {
            true => Err(Error::said(
                "pin the clock of",
                &cpus,
                "no cpufreq governor",
            )),
            false => Ok(pinned),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for (path, governor) in &self.before {
            if let Err(error) = fs::write(path, governor) {
                log::error!("{}", Error::new("write", path, error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_governor_is_set_and_put_back() {
        let root = std::env::temp_dir().join(format!("clock-{}", std::process::id()));
        let governor = |cpu| {
            root.join(format!(
                "sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor"
            ))
        };
        for (cpu, before) in [("cpu0", "ondemand\n"), ("cpu4", "schedutil\n")] {
            fs::create_dir_all(governor(cpu).parent().unwrap()).unwrap();
            fs::write(governor(cpu), before).unwrap();
        }
        // A Raspberry Pi's processors share one policy.
        let cpu1 = root.join("sys/devices/system/cpu/cpu1");
        fs::create_dir_all(&cpu1).unwrap();
        std::os::unix::fs::symlink("../cpu0/cpufreq", cpu1.join("cpufreq")).unwrap();
        let read = |cpu| fs::read_to_string(governor(cpu)).unwrap();
        let pinned = Pinned::new(&root).unwrap();
        assert_eq!([read("cpu0"), read("cpu4")], ["performance", "performance"]);
        drop(pinned);
        assert_eq!([read("cpu0"), read("cpu4")], ["ondemand", "schedutil"]);
        fs::remove_dir_all(&root).unwrap();
        assert!(Pinned::new(&root).is_err());
    }
}
