//! storage-selftest: can I trust this medium, and is it as fast as it should be here?

mod archive;
mod compat;
mod config;
mod error;
mod evidence;
mod first_boot;
mod judge;
mod medium;
mod probe;
mod record;
mod report;
mod run;
mod state;
mod supervise;
mod sys;
mod tar;

use argh::FromArgs;
use config::Config;
use state::Directory;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit statuses besides those of a verdict; the numbers of sysexits.h.
const USAGE: u8 = 64;
const INTERNAL: u8 = 70;
const CONFIGURATION: u8 = 78;

/// Tests the storage media of this machine and says whether each can be trusted.
/// Exit status: 0 pass, 1 warn, 2 fail, 3 unknown, 64 usage, 78 configuration, 70 internal.
#[derive(FromArgs)]
struct Arguments {
    #[argh(subcommand)]
    command: Command,
}

#[derive(FromArgs)]
#[argh(subcommand)]
enum Command {
    Run(run::Arguments),
    List(List),
    Show(Show),
    Update(Update),
    Record(archive::Arguments),
    CheckConfig(CheckConfig),
    Compat(compat::Arguments),
    Compare(compat::compare::Arguments),
    Probe(Child),
}

/// list the media that would be tested and what is known of each; nothing is read or written on them
#[derive(FromArgs)]
#[argh(subcommand, name = "list")]
struct List {
    /// read /sys, /proc and /etc under this directory
    #[argh(option, default = "\"/\".into()")]
    root: PathBuf,
    /// configuration file
    #[argh(option)]
    config: Option<PathBuf>,
}

/// show what earlier runs found
#[derive(FromArgs)]
#[argh(subcommand, name = "show")]
struct Show {
    /// only the medium with this identity or device name
    #[argh(option)]
    medium: Option<String>,
    /// each figure's course over the last runs
    #[argh(switch)]
    history: bool,
    /// directory of the state file
    #[argh(option, default = "run::STATE.into()")]
    state_dir: PathBuf,
}

/// write the message of the day, the metrics and the report again for the disks that are there now (udev does, when one is pulled out)
#[derive(FromArgs)]
#[argh(subcommand, name = "update")]
struct Update {
    /// configuration file
    #[argh(option)]
    config: Option<PathBuf>,
}

/// check the configuration file
#[derive(FromArgs)]
#[argh(subcommand, name = "check-config")]
struct CheckConfig {
    /// read /etc under this directory
    #[argh(option, default = "\"/\".into()")]
    root: PathBuf,
    /// configuration file
    #[argh(option)]
    config: Option<PathBuf>,
    /// print a commented configuration with every key's default
    #[argh(switch)]
    example: bool,
}

/// measure one medium (the program starts this itself)
#[derive(FromArgs)]
#[argh(subcommand, name = "probe")]
struct Child {}

fn main() -> ExitCode {
    let arguments: Vec<String> = match std::env::args_os()
        .skip(1)
        .map(|a| a.into_string())
        .collect()
    {
        Ok(arguments) => arguments,
        Err(wrong) => {
            eprintln!(
                "argument {} is not UTF-8",
                error::printable(&wrong.to_string_lossy())
            );
            return ExitCode::from(USAGE);
        }
    };
    if arguments == ["--version"] {
        say(&format!("storage-selftest {}\n", env!("CARGO_PKG_VERSION")));
        return ExitCode::SUCCESS;
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match Arguments::from_args(&["storage-selftest"], &words) {
        Ok(arguments) => ExitCode::from(command(arguments.command)),
        Err(exit) if exit.status.is_ok() => {
            say(&exit.output);
            ExitCode::SUCCESS
        }
        Err(exit) => {
            eprint!("{}", exit.output);
            ExitCode::from(USAGE)
        }
    }
}

fn command(command: Command) -> u8 {
    report::journal::install();
    match command {
        Command::Run(arguments) => run::run(&arguments),
        Command::List(list) => list.run(),
        Command::Show(show) => show.run(),
        Command::Update(update) => update.run(),
        Command::Record(arguments) => archive::run(&arguments),
        Command::CheckConfig(check) => check.run(),
        Command::Compat(arguments) => compat::run(&arguments),
        Command::Compare(arguments) => compat::compare::run(&arguments),
        Command::Probe(Child {}) => match supervise::child() {
            Ok(()) => 0,
            Err(error) => failed(&error, INTERNAL),
        },
    }
}

/// Prints on standard output; a reader that went away is no error of ours.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn failed(error: &error::Error, status: u8) -> u8 {
    log::error!("{error}");
    status
}

/// The configuration file to read: as named, or the usual one under `root`.
fn config_path(root: &Path, named: &Option<PathBuf>) -> PathBuf {
    let usual = || root.join(config::PATH.trim_start_matches('/'));
    named.clone().unwrap_or_else(usual)
}

impl List {
    fn run(&self) -> u8 {
        let config = match Config::read(&config_path(&self.root, &self.config)) {
            Ok(config) => config,
            Err(error) => return failed(&error, CONFIGURATION),
        };
        match medium::find(&self.root, &config.media, config.select.usb_disks) {
            Ok(found) => {
                say(&report::list::list(&found, |medium| {
                    evidence::collect_and_ask(&self.root, medium)
                }));
                0
            }
            Err(error) => failed(&error, INTERNAL),
        }
    }
}

impl Show {
    fn run(&self) -> u8 {
        let directory = Directory::new(&self.state_dir);
        let state = directory.read(false);
        let wanted = |identity: &str, device: &str| match &self.medium {
            None => true,
            Some(name) => name == identity || name.trim_start_matches("/dev/") == device,
        };
        let mut shown = 0;
        for (identity, record) in &state.media {
            if wanted(identity, &record.device) {
                let text = report::history::show(identity, record, self.history);
                // The file may be anyone's: no control character of it reaches the terminal.
                say(&text
                    .lines()
                    .map(|line| error::printable(line) + "\n")
                    .collect::<String>());
                shown += 1;
            }
        }
        if shown == 0 {
            log::warn!("{}: no medium was tested yet", directory.file().display());
            return judge::Verdict::Unknown.exit_status();
        }
        0
    }
}

impl Update {
    fn run(&self) -> u8 {
        let root = Path::new("/");
        let config = match Config::read(&config_path(root, &self.config)) {
            Ok(config) => config,
            Err(error) => return failed(&error, CONFIGURATION),
        };
        let state = Directory::new(Path::new(run::STATE)).read(false);
        report::outlets::update(root, &config.report, &state);
        0
    }
}

impl CheckConfig {
    fn run(&self) -> u8 {
        if self.example {
            say(&config::example());
            return 0;
        }
        let path = config_path(&self.root, &self.config);
        match Config::read(&path) {
            Ok(_) if path.exists() => say(&format!("{}: right\n", path.display())),
            Ok(_) => say(&format!(
                "{}: not there; the defaults hold\n",
                path.display()
            )),
            Err(error) => return failed(&error, CONFIGURATION),
        }
        0
    }
}
