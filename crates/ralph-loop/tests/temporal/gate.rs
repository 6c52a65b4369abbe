//! A gate before the server that speaks TLS and asks for client certificates, as a hosted service has one.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::scene::{Process, Scene};
use crate::server::Server;

/// Takes connections over TLS from those whose certificate is signed, and hands them on.
const GATE: &str = r#"
import asyncio, ssl, sys
folder, port = sys.argv[1], int(sys.argv[2])

async def carry(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()

async def guest(reader, writer):
    near, far = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(carry(reader, far), carry(near, writer))

async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder + "/server.pem", folder + "/server.key")
    context.load_verify_locations(folder + "/ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    server = await asyncio.start_server(guest, "127.0.0.1", 0, ssl=context)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"#;

/// Certificates and a key by configuration; the key goes to the server, and nobody is shown it.
pub(crate) fn tls(server: &mut Server) -> Result<()> {
    const KEY: &str = "8c1f7e0d-this-is-the-key";
    let scene = Scene::new(server, 2)?;
    let folder = scene.path("certificates");
    fs::create_dir(&folder)?;
    if let Err(why) = certificates(&folder) {
        println!("        skipped: no certificates can be made: {why:#}");
        return Ok(());
    }
    let (_, port) = scene.address.rsplit_once(':').context("the server has a port")?;
    let mut gate = Command::new("python3");
    gate.args(["-c", GATE]).arg(&folder).arg(port).stdin(Stdio::null());
    let gate = Process::start(gate, &scene.path("gate"))?;
    gate.wait_for_out("\n")?;
    let address = format!("https://127.0.0.1:{}", gate.out().trim().trim_start_matches("port "));
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    fs::write(folder.join("api-key"), format!("{KEY}\n"))?;

    let with_gate = |home: &str, arguments: &[&str], certificate: bool| -> Result<Process> {
        let mut command = scene.command(home, arguments)?;
        command.env("RALPH_LOOP_TEMPORAL_ADDRESS", &address);
        command.env("RALPH_LOOP_TEMPORAL_TLS_CA", file("ca.pem"));
        command.env("RALPH_LOOP_TEMPORAL_TLS_SERVER_NAME", "temporal.internal");
        command.env("RALPH_LOOP_TEMPORAL_API_KEY_FILE", file("api-key"));
        if certificate {
            command.env("RALPH_LOOP_TEMPORAL_TLS_CERT", file("client.pem"));
            command.env("RALPH_LOOP_TEMPORAL_TLS_KEY", file("client.key"));
        }
        Process::start(command, &scene.path(&uuid::Uuid::new_v4().to_string()))
    };
    let worker = with_gate("worker", &["worker"], true)?;
    worker.wait_for_out("serving")?;
    let workspace = scene.workspace.to_string_lossy().into_owned();
    let arguments = ["run", "do it", "--agent", "mine", "--workspace", &workspace];
    let said = with_gate("client", &arguments, true)?.end()?.with_status(0)?;
    ensure!(!said.out.contains(KEY) && !said.err.contains(KEY), "the key is shown: {said}");
    let said = with_gate("client", &["config"], true)?.end()?.with_status(0)?;
    ensure!(!said.out.contains(KEY), "the key is shown: {said}");
    ensure!(!worker.out().contains(KEY) && !worker.err().contains(KEY), "the worker tells the key");
    for entry in fs::read_dir(server.folder.path())? {
        let bytes = fs::read(entry?.path())?;
        ensure!(!bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes()), "the key is recorded");
    }
    // Nobody gets in without a certificate, with half of one, or to a gate that somebody else has signed.
    with_gate("client", &["runs"], false)?.end()?.with_status(16)?.with_err("cannot be reached")?;
    let mut half = scene.command("client", &["runs"])?;
    half.env("RALPH_LOOP_TEMPORAL_TLS_CERT", file("client.pem"));
    let half = Process::start(half, &scene.path("half"))?.end()?;
    half.with_status(2)?.with_err("set both")?;
    let mut foreign = scene.command("client", &["runs"])?;
    foreign.env("RALPH_LOOP_TEMPORAL_ADDRESS", &address);
    let foreign = Process::start(foreign, &scene.path("foreign"))?.end()?;
    foreign.with_status(16)?.with_err("cannot be reached")?;
    Ok(())
}

/// Makes an authority, a certificate of a server and one of a client.
fn certificates(folder: &Path) -> Result<()> {
    let openssl = |words: &str| -> Result<()> {
        let output = Command::new("openssl")
            .args(words.split(' '))
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .context("openssl cannot be started")?;
        ensure!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    let new = "req -x509 -newkey rsa:2048 -nodes -days 2";
    openssl(&format!("{new} -keyout ca.key -out ca.pem -subj /CN=authority"))?;
    for (name, usage) in [("server", "serverAuth"), ("client", "clientAuth")] {
        openssl(&format!(
            "{new} -keyout {name}.key -out {name}.pem -subj /CN={name} -CA ca.pem -CAkey ca.key \
             -addext subjectAltName=DNS:temporal.internal -addext extendedKeyUsage={usage} \
             -addext basicConstraints=critical,CA:FALSE"
        ))?;
    }
    Ok(())
}
