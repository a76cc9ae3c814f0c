//! `forkpoint bus`.

use forkpoint_engine::records::{Event, EventCursor, bus};
use forkpoint_engine::{Cancel, Client, Engine, WorldBus};
use forkpoint_model::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::app::{App, Masks};
use crate::signals::Signals;
use crate::{codes, exit, output, records};

/// Publish and read the events of a directory's world
///
/// What a branch publishes is held until the branch is committed, and is never seen by anybody if it is
/// rolled back. Outside, committed events alone are read, in one order for all readers.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Publish an event: at once, or held by --branch
    Publish(PublishArgs),
    /// Read events, oldest first
    Read(ReadArgs),
}

/// Whose bus.
#[derive(clap::Args, Debug)]
struct Whose {
    /// As this branch sees it
    #[arg(long, value_name = "BRANCH", conflicts_with = "base")]
    branch: Option<String>,
    /// Of this directory's world (default: the current directory's)
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct PublishArgs {
    /// The topic: up to 256 bytes of text
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// What it says, up to 1 MiB; standard input when absent or `-`
    #[arg(value_name = "PAYLOAD")]
    payload: Option<OsString>,
    #[command(flatten)]
    whose: Whose,
}

#[derive(clap::Args, Debug)]
struct ReadArgs {
    /// Only of this topic
    #[arg(value_name = "TOPIC")]
    topic: Option<String>,
    #[command(flatten)]
    whose: Whose,
    /// Only behind this cursor, as a read printed it
    #[arg(long, value_name = "CURSOR", value_parser = cursor, conflicts_with = "consumer")]
    after: Option<EventCursor>,
    /// What this consumer has not acknowledged; acknowledged once it was printed, so that nothing is
    /// lost and a crash may repeat the last ones, with the same identifiers
    #[arg(long, value_name = "NAME", conflicts_with = "branch")]
    consumer: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Go on with what is committed from now on, until interrupted. With --json, one line for each
    #[arg(long, short, conflicts_with = "branch")]
    follow: bool,
}

/// How often a followed bus is looked at.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Publishes or reads.
pub(crate) fn run(app: &App, args: Args) -> Result<u8> {
    // Before any thread is started: an interrupt ends following, with its own status.
    let cancel = match &args.what {
        What::Read(read) if read.follow => {
            let cancel = Cancel::new()?;
            Signals::ending()?.raise(cancel.clone());
            Some(cancel)
        }
        _ => None,
    };
    if let Some(client) = inside(&args.what)? {
        return through(app, client, args.what);
    }
    let engine = app.engine(&Masks::default())?;
    match args.what {
        What::Publish(args) => publish(app, &engine, args),
        What::Read(args) => read(app, &engine, &args, cancel.as_ref()),
    }
}

fn publish(app: &App, engine: &Engine, args: PublishArgs) -> Result<u8> {
    let payload = match args.payload {
        Some(text) if text != "-" => text.into_vec(),
        _ => standard_input(bus::MAX_PAYLOAD)?,
    };
    let (id, held) = match &args.whose.branch {
        Some(name) => {
            let bus = app.branch(engine, name)?.bus()?;
            (bus.publish(&args.topic, &payload)?, true)
        }
        None => {
            let bus = app.world(engine, args.whose.base.as_deref(), false)?.bus();
            (bus.publish(&args.topic, &payload)?.id, false)
        }
    };
    if app.json() {
        output::print_json(&json!({
            "schema": "forkpoint.publish/1", "id": id, "topic": args.topic, "held": held,
        }))?;
    } else if held {
        app.say("held until the branch is committed");
    }
    Ok(exit::DONE)
}

/// Inside a branch it is that branch's bus, through its socket, unless another is named.
fn inside(what: &What) -> Result<Option<Client>> {
    let whose = match what {
        What::Publish(args) => &args.whose,
        What::Read(args) => &args.whose,
    };
    match whose.branch.is_none() && whose.base.is_none() {
        true => super::attempt::client(),
        false => Ok(None),
    }
}

fn through(app: &App, mut client: Client, what: What) -> Result<u8> {
    match what {
        What::Publish(args) => {
            let payload = match args.payload {
                Some(text) if text != "-" => text.into_vec(),
                _ => standard_input(bus::MAX_PAYLOAD)?,
            };
            let id = client.publish(&args.topic, &payload)?;
            if app.json() {
                output::print_json(&json!({
                    "schema": "forkpoint.publish/1", "id": id, "topic": args.topic, "held": true,
                }))?;
            } else {
                app.say("held until the branch is committed");
            }
        }
        What::Read(args) => {
            if args.follow || args.consumer.is_some() {
                return Err(codes::USAGE
                    .error("a branch sees no event that comes later, and acknowledges none")
                    .hint("leave --follow and --consumer out, or run it outside of the branch"));
            }
            let after = args.after.unwrap_or_default();
            let events = client.events(args.topic.as_deref(), after, args.limit)?;
            print(app, &events, false)?;
        }
    }
    Ok(exit::DONE)
}

/// All of it, if it is not more than fits; one byte above tells.
pub(crate) fn standard_input(most: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(most as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| codes::USAGE.io("standard input cannot be read", e))?;
    Ok(bytes)
}

fn read(app: &App, engine: &Engine, args: &ReadArgs, cancel: Option<&Cancel>) -> Result<u8> {
    let topic = args.topic.as_deref();
    let mut after = args.after.unwrap_or_default();
    if let Some(name) = &args.whose.branch {
        let events = app
            .branch(engine, name)?
            .bus()?
            .read(topic, after, args.limit)?;
        return print(app, &events, false).map(|()| exit::DONE);
    }
    let bus = app.world(engine, args.whose.base.as_deref(), false)?.bus();
    loop {
        let events = match &args.consumer {
            Some(consumer) => bus.poll(consumer, topic, args.limit),
            None => bus.read(topic, after, args.limit),
        }?;
        print(app, &events, args.follow)?;
        if let Some(last) = events.last() {
            after = last.cursor;
            acknowledge(&bus, args, after)?;
        }
        match cancel {
            None => return Ok(exit::DONE),
            Some(cancel) if cancel.is_cancelled() => return Ok(exit::INTERRUPTED),
            Some(cancel) if events.is_empty() => {
                let mut fds = [PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN)];
                match poll(&mut fds, Some(&LOOK)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(codes::OUTPUT.io("cannot wait for events", e)),
                }
            }
            Some(_) => {}
        }
    }
}

/// After it was printed; a commit that is just under way makes nobody wait for long.
fn acknowledge(bus: &WorldBus, args: &ReadArgs, upto: EventCursor) -> Result<()> {
    match &args.consumer {
        Some(consumer) => bus.acknowledge(consumer, args.topic.as_deref(), upto),
        None => Ok(()),
    }
}

fn print(app: &App, events: &[Event], lines: bool) -> Result<()> {
    if app.json() && !lines {
        let rows: Vec<Value> = events.iter().map(event_json).collect();
        return output::print_json(&json!({"schema": "forkpoint.events/1", "events": rows}));
    }
    let mut text = String::new();
    for event in events {
        if app.json() {
            let mut row = event_json(event);
            row["schema"] = json!("forkpoint.event/1");
            text.push_str(&row.to_string());
        } else {
            let payload = String::from_utf8_lossy(&event.payload);
            let payload = forkpoint_explore::logs::printable(&payload);
            text.push_str(&format!(
                "{}\t{}\t{payload}",
                shown(event.cursor),
                event.topic
            ));
        }
        text.push('\n');
    }
    output::print(&text)
}

/// An event, for programs. A payload that is not text is in base 16.
pub(crate) fn event_json(event: &Event) -> Value {
    let (payload, hex) = match std::str::from_utf8(&event.payload) {
        Ok(text) => (Some(text), None),
        Err(_) => {
            let hex: String = event.payload.iter().map(|b| format!("{b:02x}")).collect();
            (None, Some(hex))
        }
    };
    json!({
        "id": event.id,
        "cursor": shown(event.cursor),
        "topic": event.topic,
        "payload": payload,
        "payload_hex": hex,
        "branch": event.branch,
        "commit": event.commit,
        "held": event.held,
        "at": records::seconds(event.at_ns),
    })
}

/// A cursor as it is printed and read again.
fn shown(cursor: EventCursor) -> String {
    match i64::try_from(cursor.position) {
        Ok(i64::MAX) | Err(_) => format!("held.{}", cursor.n),
        Ok(position) => format!("{position}.{}", cursor.n),
    }
}

fn cursor(text: &str) -> std::result::Result<EventCursor, String> {
    let wrong = || format!("{text:?} is no cursor, which is printed like 12.3");
    let (position, n) = text.split_once('.').ok_or_else(wrong)?;
    let position = match position {
        "held" => i64::MAX as u64,
        number => number.parse().map_err(|_| wrong())?,
    };
    let n = n.parse().map_err(|_| wrong())?;
    Ok(EventCursor { position, n })
}
