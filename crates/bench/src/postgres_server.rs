//! Finds, starts and stops a PostgreSQL server.

use std::{
    env,
    ffi::OsString,
    fs::{self, File, Permissions},
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use tokio_postgres::Config;

use crate::{Result, measure::Stopwatch};

/// The name of the database's owner; nobody else ever connects.
const USER: &str = "bench";
/// A unix socket's path may have 107 bytes; this leaves room for the file name.
const SOCKET_DIRECTORY_BYTES_MAX: usize = 85;
/// Long enough to write out everything dirty.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// A running server; dropping it stops the server and removes its directory.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
    sockets: TempDir,
    _directory: TempDir,
}

impl Server {
    /// Starts a server with its data below `parent`, or returns `None` if none is installed.
    ///
    /// Call this from the main thread: where the system can, the server is told to end with the
    /// thread that started it.
    pub(crate) fn start(parent: &Path) -> Result<Option<Self>> {
        let Some(programs) = programs() else {
            return Ok(None);
        };
        let account = Account::to_run_as()?;
        let directory = tempfile::Builder::new()
            .prefix("postgres-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(parent)?;
        let inside = fs::canonicalize(directory.path())?;
        let sockets = if inside.as_os_str().len() <= SOCKET_DIRECTORY_BYTES_MAX {
            tempfile::Builder::new().prefix("s").tempdir_in(&inside)?
        } else {
            tempfile::Builder::new().prefix("s").tempdir()?
        };
        let data = inside.join("data");
        fs::create_dir(&data)?;
        fs::set_permissions(&data, Permissions::from_mode(0o700))?;
        account.give(&data)?;
        account.give(sockets.path())?;

        let log = inside.join("log");
        initialize(&account, &programs, &data, &log)?;
        let mut command = account.command(&programs.join("postgres"));
        command.arg("-D").arg(&data);
        command.args(["-c", "listen_addresses=", "-c"]);
        command.arg(setting("unix_socket_directories=", &fs::canonicalize(sockets.path())?));
        command.current_dir(&data).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&log)?);
        let child = command.spawn()?;
        Ok(Some(Self { child, log, sockets, _directory: directory }))
    }

    /// How to connect.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new();
        config.host_path(self.sockets.path()).user(USER).dbname("postgres");
        config
    }

    /// Where its socket is.
    pub(crate) fn sockets(&self) -> &Path {
        self.sockets.path()
    }

    /// As whom to connect.
    pub(crate) fn user(&self) -> &'static str {
        USER
    }

    /// The id of its first process, the parent of all others.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the server has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("{status}, {}", last_lines(&self.log)).into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An interrupt asks for a fast but orderly shutdown, which also frees shared memory.
        let process = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let asked = process.map(|it| kill_process(it, Signal::INT));
        let stopwatch = Stopwatch::start();
        while matches!(asked, Some(Ok(()))) && stopwatch.elapsed() < STOP_TIME_MAX {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        eprintln!("PostgreSQL did not stop when asked; it is killed");
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait().map(drop)) {
            eprintln!("could not kill PostgreSQL: {error}");
        }
    }
}

/// Who runs the server, and through which program.
#[derive(Debug)]
struct Account {
    user_and_group: Option<(u32, u32)>,
    setpriv: Option<PathBuf>,
}

impl Account {
    /// The current user, unless that is root, whom PostgreSQL refuses.
    fn to_run_as() -> Result<Self> {
        let setpriv = on_path("setpriv");
        if !geteuid().is_root() {
            return Ok(Self { user_and_group: None, setpriv });
        }
        if setpriv.is_none() {
            return Err("PostgreSQL does not run as root, and `setpriv` is not installed".into());
        }
        let accounts = fs::read_to_string("/etc/passwd")?;
        let found = ["postgres", "nobody"].iter().find_map(|it| find_account(&accounts, it));
        let user_and_group =
            found.ok_or("PostgreSQL does not run as root, and there is no other")?;
        Ok(Self { user_and_group: Some(user_and_group), setpriv })
    }

    fn give(&self, path: &Path) -> Result<()> {
        if let Some((user, group)) = self.user_and_group {
            chown(path, Some(user), Some(group))?;
        }
        Ok(())
    }

    fn command(&self, program: &Path) -> Command {
        let Some(setpriv) = &self.setpriv else {
            return Command::new(program);
        };
        let mut command = Command::new(setpriv);
        if let Some((user, group)) = self.user_and_group {
            command.args([format!("--reuid={user}"), format!("--regid={group}")]);
            command.arg("--clear-groups");
        }
        // A killed benchmark must not leave a server behind.
        command.args(["--pdeathsig", "INT"]).arg(program);
        command
    }
}

fn initialize(account: &Account, programs: &Path, data: &Path, log: &Path) -> Result<()> {
    let mut command = account.command(&programs.join("initdb"));
    command.arg("-D").arg(data).args(["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C"]);
    command.current_dir(data).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.stderr(File::create(log)?).status()?;
    if !status.success() {
        return Err(format!("could not create a database: {}", last_lines(log)).into());
    }
    Ok(())
}

/// The directory that holds `postgres` and `initdb`.
fn programs() -> Option<PathBuf> {
    let linked = on_path("postgres").and_then(|it| fs::canonicalize(it).ok());
    let linked = linked.and_then(|it| it.parent().map(Path::to_owned));
    linked.into_iter().chain(packaged()).find(|it| it.join("initdb").is_file())
}

/// Where Debian puts them; the newest version first.
fn packaged() -> Vec<PathBuf> {
    let entries = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |it: &Path| it.file_name()?.to_str()?.parse::<u32>().ok();
    let mut versions: Vec<PathBuf> = entries.map(|it| it.path()).collect();
    versions.sort_by_key(|it| std::cmp::Reverse(version(it)));
    versions.into_iter().map(|it| it.join("bin")).collect()
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|it| it.join(program)).find(|it| it.is_file())
}

/// User and group of a line `name:x:user:group:...`.
fn find_account(accounts: &str, name: &str) -> Option<(u32, u32)> {
    let mut lines = accounts.lines().map(|it| it.split(':').collect::<Vec<_>>());
    let line = lines.find(|it| it.first() == Some(&name))?;
    Some((line.get(2)?.parse().ok()?, line.get(3)?.parse().ok()?))
}

fn setting(name: &str, value: &Path) -> OsString {
    let mut text = OsString::from(name);
    text.push(value);
    text
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let accounts = "root:x:0:0::/root:/bin/sh\npost:x:1:1\npostgres:x:101:104:,:/x:/bin/sh\n";
        let check = |name, expected| assert_eq!(find_account(accounts, name), expected);
        check("postgres", Some((101, 104)));
        check("post", Some((1, 1)));
        check("nobody", None);
    }
}
