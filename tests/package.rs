//! The Debian packages: what is in them, twice the same bytes, how much a root grows; and the manual.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// How much the root file system may grow.
const GROWTH: u64 = 1_200 * 1024;

/// What a command says; it must succeed.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}{error}");
    text
}

fn packed(architecture: &str) -> PathBuf {
    let script = Path::new(ROOT).join("image/deb.sh");
    let line = said(Command::new(script).arg(architecture));
    Path::new(ROOT).join(line.split(':').next().unwrap())
}

/// The binaries that `make dist` built, by Debian's names; a test without one says so.
fn architectures() -> Vec<&'static str> {
    let all = [
        ("aarch64", "arm64"),
        ("armv6", "armhf"),
        ("x86_64", "amd64"),
    ];
    let built = all.into_iter().filter(|(arch, debian)| {
        let built = Path::new(ROOT)
            .join(format!("dist/{arch}/storage-selftest"))
            .exists();
        if !built {
            let _ = writeln!(std::io::stderr(), "SKIPPED {debian}: make dist was not run");
        }
        built
    });
    built.map(|(_, debian)| debian).collect()
}

#[test]
fn packages_are_whole_small_and_the_same_each_time() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED the packages: dpkg-deb is not installed"
        );
        return;
    }
    for architecture in architectures() {
        let package = packed(architecture);
        let first = fs::read(&package).unwrap();
        // A later build must not show.
        std::thread::sleep(std::time::Duration::from_secs(1));
        assert!(
            fs::read(packed(architecture)).unwrap() == first,
            "{architecture} differs"
        );

        let field = |name: &str| {
            said(Command::new("dpkg-deb").arg("-f").arg(&package).arg(name))
                .trim()
                .to_string()
        };
        assert_eq!(field("Architecture"), architecture);
        assert_eq!(field("Depends"), "", "a static binary needs nothing");
        let conffiles = said(
            Command::new("dpkg-deb")
                .arg("-I")
                .arg(&package)
                .arg("conffiles"),
        );
        assert_eq!(
            conffiles,
            "/etc/storage-selftest.toml\n/etc/update-motd.d/60-storage-selftest\n"
        );
        let at =
            std::env::temp_dir().join(format!("package-{}-{architecture}", std::process::id()));
        said(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&at));
        for file in [
            "usr/bin/storage-selftest",
            "usr/lib/systemd/system/storage-selftest.timer",
            "usr/lib/systemd/catalog/storage-selftest.catalog",
            "usr/lib/udev/rules.d/90-storage-selftest.rules",
            "usr/share/man/man8/storage-selftest.8.gz",
            "usr/share/man/man5/storage-selftest.toml.5.gz",
            "usr/share/doc/storage-selftest/copyright",
        ] {
            assert!(at.join(file).is_file(), "{architecture}: {file}");
        }
        // In blocks of 4 KiB, as on ext4.
        let growth = said(Command::new("du").args(["-s", "-B1"]).arg(&at));
        let growth: u64 = growth.split_whitespace().next().unwrap().parse().unwrap();
        assert!(
            growth <= GROWTH,
            "{architecture}: the root grows by {growth} bytes"
        );
        fs::remove_dir_all(at).unwrap();
    }
}

#[test]
fn lintian_finds_no_error() {
    if Command::new("lintian").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED lintian: not installed");
        return;
    }
    for architecture in architectures() {
        let package = packed(architecture);
        let mut lintian = Command::new("lintian");
        lintian
            .args(["--allow-root", "--fail-on", "error,warning"])
            .arg(package);
        said(&mut lintian);
    }
}

/// Every command and option that the help names is in the manual, and no other.
#[test]
fn the_manual_has_every_command_and_option() {
    let page = fs::read_to_string(Path::new(ROOT).join("image/man/storage-selftest.8")).unwrap();
    let page = page.replace("\\-", "-");
    let help = |arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_storage-selftest"));
        said(program.args(arguments).arg("--help"))
    };
    let mut texts = vec![help(&[])];
    let list = texts[0].split("Commands:").nth(1).unwrap().to_string();
    let column = list.lines().filter_map(|line| line.strip_prefix("  "));
    let names = column.filter(|line| !line.starts_with(' '));
    let names = names.filter_map(|line| line.split_whitespace().next());
    // The program starts `probe` itself.
    for command in names.filter(|name| *name != "probe") {
        assert!(page.contains(&format!("\n.B {command}\n")), "{command}");
        texts.push(help(&[command]));
    }
    assert!(texts.len() > 4, "{list}");
    let options = |text: &str| -> Vec<String> {
        let word = |c: char| c.is_ascii_lowercase() || c == '-';
        let parts = text.split(|c: char| !word(c));
        let mut options: Vec<String> = parts
            .filter(|part| part.starts_with("--") && part.len() > 2)
            .map(Into::into)
            .collect();
        options.sort();
        options.dedup();
        options
    };
    let ours = ["--version"];
    for option in options(&texts.concat()).iter().filter(|o| *o != "--help") {
        assert!(
            page.contains(option.as_str()),
            "{option} is not in the manual"
        );
    }
    for option in options(&page) {
        let foreign = ["--failed"].contains(&option.as_str());
        let known = texts.concat().contains(&option) || ours.contains(&option.as_str());
        assert!(foreign || known, "{option} is in the manual only");
    }
    // The manual's macros, where man can check them.
    let mut man = Command::new("man");
    for page in ["storage-selftest.8", "storage-selftest.toml.5"] {
        man.env("LC_ALL", "C.UTF-8")
            .args(["--warnings", "-l", "-Tutf8"]);
        let path = Path::new(ROOT).join("image/man").join(page);
        match man.arg(path).output() {
            Ok(output) => assert!(output.stderr.is_empty(), "{output:?}"),
            Err(_) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED man --warnings: not installed");
            }
        }
        man = Command::new("man");
    }
}
