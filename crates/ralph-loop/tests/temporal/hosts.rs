//! Two workers on hosts of their own: each in a network and with a host name of its own.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::scene::{Process, Scene};
use crate::server::Server;

const RUNS: usize = 20;
const ROUNDS: u64 = 10;
/// How many clients are there at once.
const LANES: usize = 10;

/// Two workers with networks of their own, one server, one folder that both have: 20 runs of 10 rounds.
pub(crate) fn two_hosts(server: &mut Server) -> Result<()> {
    let (alpha, beta) = match (Host::new("alpha", 1, server), Host::new("beta", 2, server)) {
        (Ok(alpha), Ok(beta)) => (alpha, beta),
        (Err(why), _) | (_, Err(why)) => {
            println!("        skipped: this machine does not let us have networks of our own: {why:#}");
            return Ok(());
        }
    };
    let scene = Scene::new(server, ROUNDS)?;
    let root = scene.path("shared");
    scene.configure(&format!("[temporal]\nworkspaces = {root:?}\n"))?;
    for run in 0..RUNS {
        fs::create_dir_all(root.join(format!("run-{run}")))?;
    }
    let workers = [alpha.worker(&scene)?, beta.worker(&scene)?];
    for worker in &workers {
        worker.wait_for_out("serving")?;
    }
    let begin = Instant::now();
    let next = AtomicUsize::new(0);
    let runs: Vec<Result<Vec<String>>> = thread::scope(|scope| {
        let lane = || {
            let mut ids = Vec::new();
            loop {
                let run = next.fetch_add(1, Ordering::Relaxed);
                if run >= RUNS {
                    return Ok(ids);
                }
                let workspace = format!("run-{run}");
                let arguments = ["run", "do it", "--agent", "mine", "--workspace", &workspace];
                let started = scene.start("client", &arguments)?;
                ids.push(started.run_id()?);
                started.end()?.with_status(0)?.with_out("after 10 rounds")?;
            }
        };
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().map(|lane| lane.join().expect("a lane tells what fails")).collect()
    });
    let runs: Vec<String> = runs.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    let took = begin.elapsed();
    let (mut by_alpha, mut by_beta) = (0, 0);
    for run in &runs {
        let shown = scene.shown("client", run)?;
        ensure!(shown["outcome"] == "complete" && shown["attempts"] == ROUNDS, "{shown}");
        let rounds = shown["rounds"].as_array().context("a run has rounds")?;
        for round in rounds {
            match round["attempts"][0]["worker"].as_str() {
                Some(worker) if worker.ends_with("@alpha") => by_alpha += 1,
                Some(worker) if worker.ends_with("@beta") => by_beta += 1,
                other => bail!("a round by {other:?}"),
            }
        }
    }
    let ends = scene.lines().iter().filter(|line| !line.is_start).count() as u64;
    ensure!(ends == RUNS as u64 * ROUNDS, "{ends} rounds were done");
    ensure!(by_alpha > 0 && by_beta > 0, "one host did everything: {by_alpha} and {by_beta}");
    println!(
        "        {RUNS} runs of {ROUNDS} rounds in {:.1} s: {by_alpha} rounds on alpha, {by_beta} on beta",
        took.as_secs_f64()
    );
    Ok(())
}

/// A network with one cable to ours, and a host name. Both go when it is dropped.
struct Host {
    name: &'static str,
    namespace: String,
    /// Where the server is, seen from there.
    address: String,
}

impl Host {
    fn new(name: &'static str, number: u8, server: &Server) -> Result<Self> {
        let pid = std::process::id();
        let namespace = format!("ralph-{pid}-{name}");
        ip(&format!("netns add {namespace}"))?;
        // From here on it is removed again, whatever happens.
        let mut host = Self { name, namespace, address: String::new() };
        let namespace = &host.namespace;
        let (near, far) = (format!("rl{}n{number}", pid % 100_000), format!("rl{}f{number}", pid % 100_000));
        // A network for documentation, which is nobody's.
        let (ours, theirs) = (format!("192.0.2.{}", number * 4 + 1), format!("192.0.2.{}", number * 4 + 2));
        ip(&format!("link add {near} type veth peer name {far} netns {namespace}"))?;
        ip(&format!("address add {ours}/30 dev {near}"))?;
        ip(&format!("link set {near} up"))?;
        ip(&format!("-n {namespace} address add {theirs}/30 dev {far}"))?;
        ip(&format!("-n {namespace} link set {far} up"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        let port = relay(&ours, server)?;
        host.address = format!("http://{ours}:{port}");
        Ok(host)
    }

    /// A worker there. Its home and its workspaces are those of the scene, as on a file system that hosts share.
    fn worker(&self, scene: &Scene) -> Result<Process> {
        let plain = scene.command("worker", &[])?;
        let named = format!("echo {} > /proc/sys/kernel/hostname && exec \"$0\" worker", self.name);
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace, "unshare", "--uts", "sh", "-c", &named])
            .arg(plain.get_program())
            .env_clear()
            .envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("RALPH_LOOP_TEMPORAL_ADDRESS", &self.address)
            .current_dir(scene.path("worker"))
            .stdin(Stdio::null());
        Process::start(command, &scene.path(self.name))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The cable goes with the network.
        let _ = ip(&format!("netns delete {}", self.namespace));
    }
}

fn ip(words: &str) -> Result<()> {
    let output = Command::new("ip").args(words.split(' ')).stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// Carries connections to our end of a cable on to the server, which listens on the loopback interface only.
fn relay(ours: &str, server: &Server) -> Result<u16> {
    let listener = TcpListener::bind((ours, 0))?;
    let port = listener.local_addr()?.port();
    let address = server.address();
    let target: SocketAddr = address.strip_prefix("http://").context("the server has an address")?.parse()?;
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(target) else { continue };
            let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { continue };
            for (mut from, mut to) in [(near, far_too), (far, near_too)] {
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    Ok(port)
}
