//! One server on standard streams, shared by all callers: a line of JSON each way, told apart by its id.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    process::Stdio,
    rc::Rc,
};

use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{Mutex, oneshot},
};

type Waiting = RefCell<HashMap<u64, oneshot::Sender<Vec<u8>>>>;

/// The server's process and what waits for its replies.
pub struct Pipe {
    child: Child,
    input: Mutex<ChildStdin>,
    waiting: Rc<Waiting>,
    next: Cell<u64>,
}

#[derive(Deserialize)]
struct Id {
    id: Option<u64>,
}

impl Pipe {
    /// Starts the server and reads its lines until it ends.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &[String]) -> Result<Rc<Pipe>, String> {
        let (program, arguments) = command.split_first().ok_or("no command to start")?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start `{program}`: {error}"))?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let output = child.stdout.take().ok_or("no standard output")?;
        let waiting: Rc<Waiting> = Rc::default();
        tokio::task::spawn_local(read(output, Rc::clone(&waiting)));
        Ok(Rc::new(Pipe {
            child,
            input: Mutex::new(input),
            waiting,
            next: Cell::new(0),
        }))
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// An id that no other message has.
    pub fn id(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    /// # Errors
    /// When the server has ended.
    pub async fn exchange(&self, id: u64, line: &mut Vec<u8>) -> Result<Vec<u8>, String> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(id, sender);
        self.notify(line).await?;
        receiver.await.map_err(|_| "the server ended".to_owned())
    }

    /// Sends what has no reply.
    ///
    /// # Errors
    /// When the server has ended.
    pub async fn notify(&self, line: &mut Vec<u8>) -> Result<(), String> {
        line.push(b'\n');
        let mut input = self.input.lock().await;
        input
            .write_all(line)
            .await
            .map_err(|error| format!("the pipe: {}", error.kind()))
    }
}

async fn read(output: ChildStdout, waiting: Rc<Waiting>) {
    let mut lines = BufReader::with_capacity(64 * 1024, output);
    loop {
        let mut line = Vec::new();
        match lines.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let id = serde_json::from_slice::<Id>(&line).ok().and_then(|id| id.id);
        if let Some(sender) = id.and_then(|id| waiting.borrow_mut().remove(&id)) {
            // A caller whose time is over no longer waits.
            drop(sender.send(line));
        }
    }
    waiting.borrow_mut().clear();
}
