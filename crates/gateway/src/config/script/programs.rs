//! The programs whose arguments are known to be program text, or another program to start.
//!
//! `script` looks them up when a command is checked. No such list is complete, and the documentation says so.

/// How one program reads its arguments.
pub(super) struct Program {
    /// Names without folder and version.
    pub(super) names: &'static [&'static str],
    /// Letters of short options whose value is program text, or names a file that is run.
    pub(super) code: &'static [char],
    /// Long options of that kind, with their dashes.
    pub(super) code_long: &'static [&'static str],
    /// Options of those kinds that do not stand for the script: they load something before it.
    pub(super) loads: &'static [&'static str],
    /// Letters of short options with another value: the rest of the item, or the next item.
    pub(super) valued: &'static [char],
    /// Long options whose value is the next item.
    pub(super) valued_long: &'static [&'static str],
    /// What its operands are.
    pub(super) operands: Operands,
    /// A language: found anywhere in a command, and without a script it reads its program on standard input.
    pub(super) language: bool,
    /// Nothing after the first program text is an option.
    pub(super) ends: bool,
    /// Words after which another command stands, as after `find -exec`.
    pub(super) exec: &'static [&'static str],
    /// The safe way, after "pass … ": in it `%p` is the program, `%o` the option and `%v` the placeholder.
    pub(super) safe: &'static str,
}

/// What the arguments that are no options are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operands {
    /// Values.
    Plain,
    /// The first is program text, or names a file that is run, unless an option gave the program text.
    First,
    /// Those from this one on are program text.
    From(usize),
    /// After this many there is another program with its arguments.
    Command(usize),
}

/// A program about which only its name is known.
const PLAIN: Program = Program {
    names: &[],
    code: &[],
    code_long: &[],
    loads: &[],
    valued: &[],
    valued_long: &[],
    operands: Operands::Plain,
    language: false,
    ends: false,
    exec: &[],
    safe: "it as data to a script of your own that takes it as an argument",
};

/// A language whose first operand is a script.
const LANGUAGE: Program = Program {
    operands: Operands::First,
    language: true,
    safe: "it beside the text: [\"%p\", \"%o\", \"…\", \"%v\"]",
    ..PLAIN
};

const WRAPPER: Program = Program {
    operands: Operands::Command(0),
    ..PLAIN
};

/// What is known.
pub(super) const PROGRAMS: &[Program] = &[
    Program {
        names: &["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "rbash", "hush"],
        code: &['c'],
        code_long: &["--rcfile", "--init-file"],
        loads: &["--rcfile", "--init-file"],
        valued: &['o', 'O'],
        ends: true,
        safe: "it beside the text: [\"%p\", \"%o\", \"… \\\"$1\\\" …\", \"sh\", \"%v\"]",
        ..LANGUAGE
    },
    Program {
        names: &["fish"],
        code: &['c', 'C'],
        code_long: &["--command", "--init-command"],
        loads: &["-C", "--init-command"],
        safe: "it beside the text: [\"%p\", \"%o\", \"… $argv[1] …\", \"%v\"]",
        ..LANGUAGE
    },
    Program {
        names: &["csh", "tcsh"],
        code: &['c'],
        ends: true,
        ..LANGUAGE
    },
    Program {
        names: &["python", "pypy", "ipython"],
        code: &['c', 'm'],
        valued: &['W', 'X'],
        ends: true,
        safe: "it beside the text: [\"%p\", \"%o\", \"… sys.argv[1] …\", \"%v\"]",
        ..LANGUAGE
    },
    Program {
        names: &["perl"],
        code: &['e', 'E', 'M', 'm'],
        loads: &["-M", "-m"],
        valued: &['I'],
        safe: "it beside the text: [\"%p\", \"%o\", \"… $ARGV[0] …\", \"%v\"]",
        ..LANGUAGE
    },
    Program {
        names: &["ruby", "jruby"],
        code: &['e', 'r'],
        loads: &["-r"],
        valued: &['I', 'C', 'E'],
        safe: "it beside the text: [\"%p\", \"%o\", \"… ARGV[0] …\", \"%v\"]",
        ..LANGUAGE
    },
    Program {
        names: &["node", "nodejs", "bun", "deno"],
        code: &['e', 'p', 'r'],
        code_long: &[
            "--eval",
            "--print",
            "eval",
            "--require",
            "--import",
            "--loader",
            "--experimental-loader",
        ],
        loads: &["-r", "--require", "--import", "--loader", "--experimental-loader"],
        safe: "it beside the text: [\"%p\", \"%o\", \"… process.argv[1] …\", \"%v\"]",
        ..LANGUAGE
    },
    Program {
        names: &["php"],
        code: &['r', 'f', 'B', 'R', 'E', 'F'],
        code_long: &[
            "--run",
            "--file",
            "--process-begin",
            "--process-code",
            "--process-end",
        ],
        valued: &['d', 'c', 'z'],
        safe: "it beside the text: [\"%p\", \"%o\", \"… $argv[1] …\", \"--\", \"%v\"]",
        ..LANGUAGE
    },
    Program {
        names: &["lua", "luajit"],
        code: &['e', 'l'],
        // Its script comes after any `-e`.
        loads: &["-e", "-l"],
        safe: "it beside the text: [\"%p\", \"%o\", \"… arg[1] …\", \"%v\"]",
        ..LANGUAGE
    },
    Program {
        names: &["pwsh", "powershell"],
        code_long: &[
            "-c",
            "-f",
            "-e",
            "-ec",
            "-Command",
            "-command",
            "-File",
            "-file",
            "-EncodedCommand",
            "-encodedcommand",
        ],
        safe: "it beside the text: [\"%p\", \"%o\", \"… $args[0] …\", \"%v\"]",
        ..LANGUAGE
    },
    Program {
        names: &[
            "Rscript",
            "R",
            "osascript",
            "julia",
            "octave",
            "gnuplot",
            "swift",
            "scala",
            "elixir",
            "groovy",
            "raku",
            "ghc",
            "clojure",
            "racket",
            "guile",
            "janet",
            "tclsh",
            "wish",
            "expect",
            "erl",
            "escript",
            "sbcl",
            "nu",
            "gjs",
            "maxima",
            "gp",
        ],
        code: &['e', 'E', 'c'],
        code_long: &["--eval", "--print", "-eval", "--expression", "--load", "--script"],
        ..LANGUAGE
    },
    Program {
        names: &["awk", "gawk", "mawk", "nawk"],
        code: &['e', 'f', 'E', 'i', 'l'],
        code_long: &["--source", "--file", "--exec", "--include", "--load"],
        loads: &["-i", "-l", "--include", "--load"],
        valued: &['F', 'v'],
        valued_long: &["--field-separator", "--assign"],
        operands: Operands::First,
        safe: "it as a variable: [\"%p\", \"-v\", \"x=%v\", \"… x …\"]",
        ..PLAIN
    },
    Program {
        names: &["sed", "gsed"],
        code: &['e', 'f'],
        code_long: &["--expression", "--file"],
        valued: &['l'],
        operands: Operands::First,
        ..PLAIN
    },
    Program {
        names: &["ssh", "autossh"],
        code: &['o', 'F'],
        valued: &[
            'B', 'b', 'c', 'D', 'E', 'e', 'I', 'i', 'J', 'L', 'l', 'm', 'O', 'p', 'Q', 'R', 'S', 'W', 'w',
        ],
        operands: Operands::From(1),
        safe: "it on standard input (`stdin`) to a script on the other machine, which joins its arguments into one \
               command for a shell",
        ..PLAIN
    },
    Program {
        names: &["scp", "sftp"],
        code: &['o', 'S', 'F', 'D'],
        ..PLAIN
    },
    Program {
        names: &["rsync"],
        code: &['e'],
        code_long: &["--rsh", "--rsync-path"],
        ..PLAIN
    },
    Program {
        names: &["su", "runuser"],
        code: &['c', 's'],
        code_long: &["--command", "--session-command", "--shell"],
        valued: &['g', 'G', 'w', 'u'],
        operands: Operands::From(1),
        ..PLAIN
    },
    Program {
        names: &["script"],
        code: &['c'],
        code_long: &["--command"],
        valued: &['E', 'I', 'O', 'B', 'T', 'm', 'o'],
        operands: Operands::From(1),
        ..PLAIN
    },
    Program {
        names: &["watch"],
        valued: &['n', 'q'],
        valued_long: &["--interval", "--equexit"],
        operands: Operands::From(0),
        ..PLAIN
    },
    Program {
        names: &[
            "eval",
            "source",
            ".",
            "parallel",
            "tmux",
            "screen",
            "socat",
            "entr",
            "hyperfine",
        ],
        operands: Operands::From(0),
        ..PLAIN
    },
    Program {
        names: &["make", "gmake"],
        code: &['f', 'C', 'I'],
        code_long: &["--eval", "--file", "--makefile", "--directory"],
        valued: &['j', 'l', 'o', 'W'],
        operands: Operands::From(0),
        safe: "one of a few names: give the argument an `enum` (a value such as `SHELL=…` would run code)",
        ..PLAIN
    },
    Program {
        names: &["git"],
        code: &['c'],
        code_long: &[
            "--config-env",
            "--exec-path",
            "--exec",
            "--upload-pack",
            "--receive-pack",
            "foreach",
            "filter-branch",
        ],
        loads: &[
            "-c",
            "--config-env",
            "--exec-path",
            "--exec",
            "--upload-pack",
            "--receive-pack",
        ],
        valued: &['C'],
        valued_long: &["--git-dir", "--work-tree", "--namespace"],
        operands: Operands::First,
        ..PLAIN
    },
    Program {
        // `sqlite3`, without its version.
        names: &["sqlite", "duckdb"],
        code_long: &["-cmd", "-init", "--cmd", "--init", "-c", "-s", "-f"],
        valued_long: &["-separator", "-nullvalue", "-newline", "-vfs"],
        operands: Operands::From(1),
        safe: "it to a script of your own that binds it as a parameter of the statement",
        ..PLAIN
    },
    Program {
        names: &["psql"],
        code: &['c', 'f'],
        code_long: &["--command", "--file"],
        valued: &['d', 'F', 'h', 'L', 'o', 'p', 'P', 'R', 'T', 'U', 'v'],
        safe: "it as a variable: [\"%p\", \"-v\", \"x=%v\", \"-f\", \"query.sql\"], where the file says :'x'",
        ..PLAIN
    },
    Program {
        names: &["mysql", "mariadb"],
        code: &['e'],
        code_long: &["--execute", "--init-command"],
        valued: &['D', 'h', 'P', 'p', 'u', 'S'],
        safe: "it to a script of your own that binds it as a parameter of the statement",
        ..PLAIN
    },
    Program {
        names: &["mongosh", "mongo", "clickhouse-client", "cqlsh"],
        code_long: &["-e", "-f", "-q", "--execute", "--eval", "--query", "--file"],
        safe: "it to a script of your own that binds it as a parameter of the statement",
        ..PLAIN
    },
    Program {
        names: &["vim", "vi", "nvim", "ex", "view"],
        code: &['c', 'S', 'u'],
        code_long: &["--cmd"],
        ..PLAIN
    },
    Program {
        names: &["emacs", "gdb"],
        code_long: &[
            "-x",
            "-l",
            "-ex",
            "-iex",
            "-eval",
            "--eval",
            "--load",
            "--command",
            "--eval-command",
        ],
        ..PLAIN
    },
    Program {
        names: &["tar", "gtar", "bsdtar"],
        code: &['I', 'F'],
        code_long: &[
            "--to-command",
            "--checkpoint-action",
            "--use-compress-program",
            "--info-script",
            "--new-volume-script",
            "--rsh-command",
        ],
        ..PLAIN
    },
    Program {
        names: &["nc", "ncat", "netcat"],
        code: &['e', 'c'],
        code_long: &["--exec", "--sh-exec", "--lua-exec"],
        ..PLAIN
    },
    Program {
        names: &["find", "gfind", "fd", "fdfind"],
        exec: &[
            "-exec",
            "-execdir",
            "-ok",
            "-okdir",
            "-x",
            "-X",
            "--exec",
            "--exec-batch",
        ],
        ..PLAIN
    },
    // Those that start another program.
    Program {
        names: &["env"],
        code: &['S'],
        code_long: &["--split-string"],
        valued: &['u', 'C', 'P', 'a'],
        valued_long: &["--unset", "--chdir", "--argv0"],
        ..WRAPPER
    },
    Program {
        names: &["nice", "ionice"],
        valued: &['n', 'c', 'p', 'P', 'u'],
        valued_long: &["--adjustment", "--class", "--classdata"],
        ..WRAPPER
    },
    Program {
        names: &["timeout", "gtimeout"],
        valued: &['k', 's'],
        valued_long: &["--kill-after", "--signal"],
        operands: Operands::Command(1),
        ..WRAPPER
    },
    Program {
        names: &["stdbuf"],
        valued: &['i', 'o', 'e'],
        valued_long: &["--input", "--output", "--error"],
        ..WRAPPER
    },
    Program {
        names: &[
            "setsid",
            "nohup",
            "busybox",
            "toybox",
            "command",
            "exec",
            "builtin",
            "unbuffer",
            "caffeinate",
            "dbus-run-session",
            "catchsegv",
            "fakeroot",
            "npx",
            "bunx",
            "uvx",
            "pnpx",
            "xvfb-run",
            "unshare",
            "nsenter",
            "setpriv",
            "prlimit",
            "systemd-inhibit",
        ],
        ..WRAPPER
    },
    Program {
        names: &["sudo", "doas"],
        valued: &['u', 'g', 'h', 'p', 'C', 'r', 't', 'T', 'U', 'D', 'R', 'a'],
        valued_long: &["--user", "--group", "--host", "--prompt", "--chdir", "--chroot"],
        ..WRAPPER
    },
    Program {
        names: &["xargs", "gxargs"],
        valued: &['I', 'n', 'P', 'L', 's', 'd', 'E', 'a', 'J', 'R', 'S'],
        valued_long: &[
            "--max-args",
            "--max-procs",
            "--max-lines",
            "--delimiter",
            "--arg-file",
            "--replace",
        ],
        ..WRAPPER
    },
    Program {
        names: &["flock"],
        code: &['c'],
        code_long: &["--command"],
        valued: &['w', 'E'],
        valued_long: &["--timeout", "--wait", "--conflict-exit-code"],
        operands: Operands::Command(1),
        ..WRAPPER
    },
    Program {
        names: &["chroot", "taskset", "chrt"],
        valued: &['p', 'T', 'P', 'D'],
        operands: Operands::Command(1),
        ..WRAPPER
    },
    Program {
        names: &["time", "gtime"],
        valued: &['o', 'f'],
        valued_long: &["--output", "--format"],
        ..WRAPPER
    },
    Program {
        names: &["strace", "ltrace", "systemd-run"],
        valued: &['o', 'e', 'p', 'u', 'E', 'a', 's', 'P', 'O', 'S'],
        valued_long: &["--output", "--unit", "--property", "--uid", "--gid", "--setenv"],
        ..WRAPPER
    },
];

/// What is known of the program with this name or path. A relative path is a program of the user's own, whatever
/// its name, unless it is a language (`venv/bin/python`).
pub(super) fn of(program: &str) -> Option<&'static Program> {
    let name = program.rsplit('/').next().unwrap_or(program);
    let own = program.contains('/') && !program.starts_with('/');
    let find = |name: &str| PROGRAMS.iter().find(|program| program.names.contains(&name));
    find(name)
        .or_else(|| find(name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')))
        .filter(|program| !own || program.language)
}
