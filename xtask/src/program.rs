//! Starts another program and waits for it.
//!
//! Called by every command that builds or runs something. What it starts ends with it, or is waited for.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

use crate::Outcome;

/// A program that is about to be started.
pub(crate) struct Program {
    command: Command,
    shown: String,
}

impl Program {
    /// This program.
    pub(crate) fn new(name: impl AsRef<OsStr>) -> Program {
        let shown = name.as_ref().to_string_lossy().into_owned();
        Program {
            command: Command::new(name),
            shown,
        }
    }

    /// The cargo that runs us, in the workspace's root.
    pub(crate) fn cargo() -> Program {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut program = Program::new(cargo).folder(&crate::workspace::root());
        program.shown = "cargo".to_owned();
        program
    }

    /// Its arguments.
    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Program {
        for arg in args {
            self.shown.push(' ');
            self.shown.push_str(&arg.as_ref().to_string_lossy());
            self.command.arg(arg);
        }
        self
    }

    /// One more variable in its environment.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
        self.command.env(name, value);
        self
    }

    /// The folder it runs in.
    pub(crate) fn folder(mut self, folder: &Path) -> Program {
        self.command.current_dir(folder);
        self
    }

    /// Nothing of our environment, but where programs are.
    pub(crate) fn clean(mut self) -> Program {
        self.command.env_clear();
        match std::env::var_os("PATH") {
            Some(path) => self.env("PATH", path),
            None => self,
        }
    }

    /// Its standard output goes nowhere.
    pub(crate) fn quiet(mut self) -> Program {
        self.command.stdout(Stdio::null());
        self
    }

    /// Its output goes nowhere.
    pub(crate) fn silent(mut self) -> Program {
        self.command.stdout(Stdio::null()).stderr(Stdio::null());
        self
    }

    /// Whether it can be started and ends well; nothing is shown.
    pub(crate) fn works(self) -> bool {
        self.silent().status().is_ok_and(|status| status.success())
    }

    /// How it ended.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn status(mut self) -> Result<ExitStatus, String> {
        self.command
            .stdin(Stdio::null())
            .status()
            .map_err(|error| format!("cannot start `{}`: {error}", self.shown))
    }

    /// Runs it.
    ///
    /// # Errors
    /// When it cannot be started or does not end well.
    pub(crate) fn run(self) -> Outcome {
        let shown = self.shown.clone();
        let status = self.status()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("`{shown}` ended with {status}"))
        }
    }

    /// Runs it and returns what it printed.
    ///
    /// # Errors
    /// When it cannot be started, does not end well, or prints something that is not UTF-8.
    pub(crate) fn output(mut self) -> Result<String, String> {
        let output = self
            .command
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cannot start `{}`: {error}", self.shown))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout);
            return Err(format!("`{}` ended with {}\n{said}", self.shown, output.status));
        }
        String::from_utf8(output.stdout).map_err(|_| format!("`{}` printed no UTF-8", self.shown))
    }

    /// The command, to start it in the background.
    pub(crate) fn into_command(self) -> Command {
        self.command
    }
}
