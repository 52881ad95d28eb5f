//! Reading `/sys`, `/proc` and `/dev` under a root, which may be a recorded tree.
//! Nothing here trusts what it reads: short, empty and non-UTF-8 content are all usual.

use crate::error::printable;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;

/// Longest file that is read, bytes: mountinfo of a machine with thousands of mounts fits.
const READ_LIMIT: u64 = 4 << 20;
/// As many links as the kernel follows before it says ELOOP.
const LINK_LIMIT: usize = 40;

/// What is read from now on, until [`watched`]: the command `record` keeps just that.
static SEEN: Mutex<Option<BTreeSet<PathBuf>>> = Mutex::new(None);

/// Begins to note what is read.
pub fn watch() {
    if let Ok(mut seen) = SEEN.lock() {
        *seen = Some(BTreeSet::new());
    }
}

/// What was read since [`watch`], as seen from inside the root.
pub fn watched() -> BTreeSet<PathBuf> {
    let seen = SEEN.lock().ok().and_then(|mut seen| seen.take());
    seen.unwrap_or_default()
}

fn note(path: &Path) {
    if let Ok(mut seen) = SEEN.lock()
        && let Some(seen) = seen.as_mut()
    {
        seen.insert(path.to_path_buf());
    }
}

/// The root that everything is read under. All paths that go in and come out are
/// absolute as seen from inside.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// True on the machine itself, where device nodes and the kernel's own path walk are there.
    pub fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where `path` lies for the process that reads.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The content, at most 4 MiB of it.
    /// # Errors
    /// Those of open(2) and read(2); reading an attribute may fail with any errno of its driver.
    pub fn bytes(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        note(path.as_ref());
        let file = fs::File::open(self.at(path))?;
        file.take(READ_LIMIT).read_to_end(&mut content)?;
        Ok(content)
    }

    /// One line of text, blanks at its end dropped, control characters made printable.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let content = self.bytes(path).ok()?;
        let text = String::from_utf8_lossy(&content);
        Some(printable(text.trim_end_matches(['\0', '\n', ' '])))
    }

    /// A number at the start of a file; `None` where there is none.
    pub fn number<T: FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path)?.trim().parse().ok()
    }

    /// A file that holds `1`, as sysfs flags do.
    pub fn flag(&self, path: impl AsRef<Path>) -> bool {
        self.text(path).as_deref() == Some("1")
    }

    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        note(path.as_ref());
        self.at(path).symlink_metadata().is_ok()
    }

    /// The names in a directory, sorted; empty where it cannot be read.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.at(&path)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        for name in &names {
            let path = path.as_ref().join(name);
            // Of what is in a directory, other directories and links are part of its shape.
            if self.at(&path).is_dir() {
                note(&path);
            }
        }
        names
    }

    /// The path without links. In a recorded tree a part that does not exist is taken as
    /// written, since device nodes cannot be recorded.
    /// # Errors
    /// On the machine, those of realpath(3).
    pub fn real(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        note(path.as_ref());
        if self.is_machine() {
            return fs::canonicalize(path);
        }
        Ok(self.walk_links(path.as_ref(), &mut |_, _| {}))
    }

    /// The path without links, and each link on the way to it, with its target.
    pub fn walk_links(&self, path: &Path, each: &mut dyn FnMut(&Path, &Path)) -> PathBuf {
        let mut done = PathBuf::from("/");
        let mut links = 0;
        let mut todo = parts(path);
        while let Some(part) = todo.pop() {
            if part == ".." {
                done.pop();
                continue;
            }
            let next = done.join(&part);
            match fs::read_link(self.at(&next)) {
                Ok(target) if links < LINK_LIMIT => {
                    links += 1;
                    each(&next, &target);
                    if target.is_absolute() {
                        done = PathBuf::from("/");
                    }
                    todo.extend(parts(&target));
                }
                _ => done = next,
            }
        }
        done
    }
}

/// The components of a path, last one first, without `/` and `.`.
fn parts(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_os_string())
        .collect()
}

/// The last component as text: a kernel name.
pub fn name_of(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
