//! The sections that every server has. Each setting's text here is what the reference page and the JSON schema
//! say; nothing else repeats it.

use std::{net::SocketAddr, path::PathBuf};

use longhaul_core::Span;

use super::{holding::ShowSchema, measure::Bytes, setting::section};

section! {
    /// How the server listens.
    Server in "server" {
        /// Where MCP and the local page are served. An address that is not of the loopback is refused: this version has no TLS.
        bind: SocketAddr = "127.0.0.1:7410", since "0.1.0";
        /// Host names accepted in `Host` besides those of the loopback.
        allowed_hosts: Vec<String> = "", since "0.1.0";
        /// Web origins accepted in `Origin` besides those of the loopback, such as `https://app.example.org`.
        allowed_origins: Vec<String> = "", since "0.1.0";
        /// Refuse requests whose MCP headers are missing, not only those whose headers are wrong.
        strict_headers: bool = "false", since "0.1.0";
        /// The largest request body.
        body_max: Bytes = "4MiB" in 1024..=67108864, since "0.1.0";
        /// The most bytes of all request bodies in memory at once. A body takes its part as it arrives; one that finds
        /// no room waits until `read_timeout`. A quarter is kept for bodies of at most 64 KiB, and there is always
        /// room for one of `body_max`.
        bodies_max: Bytes = "64MiB" in 1048576..=17179869184, since "0.1.0";
        /// The most bytes of replies in memory that wait for their readers. A reply of at most 80 KiB always passes; a
        /// larger one waits up to 10 s for room, and then its client is told to ask again.
        replies_max: Bytes = "64MiB" in 1048576..=17179869184, since "0.1.0";
        /// How deep JSON may nest.
        depth_max: u32 = "64" in 8..=512, since "0.1.0";
        /// The most JSON values in one request.
        values_max: u32 = "100000" in 1000..=10000000, since "0.1.0";
        /// The most open connections. Past it, a new one takes the place of the one that keeps the server waiting
        /// longest: between two requests, with a request that is not complete, or without reading its reply.
        connections_max: u32 = "1024" in 2..=65536, since "0.1.0";
        /// How long a request may take to arrive, from its first byte to the end of its body.
        read_timeout: Span = "10s" in 1000..=600000, since "0.1.0";
        /// How long a connection may stay open without a request.
        idle_timeout: Span = "75s" in 1000..=3600000, since "0.1.0";
        /// How often a silent stream sends a keep-alive.
        keep_alive: Span = "15s" in 1000..=600000, since "0.1.0";
        /// The most streams that one owner may have open.
        streams_max: u32 = "64" in 1..=4096, since "0.1.0";
        /// The most streams that all owners together may have open.
        streams_total_max: u32 = "1024" in 1..=65536, since "0.1.0";
        /// The most sessions that are remembered once they have sent a request; past it, the one that was used first
        /// is made anew from its id when it is used again.
        sessions_max: u32 = "1000" in 16..=1000000, since "0.1.0";
        /// How long a session is remembered without a request or an open stream. It can still be used afterwards.
        session_idle: Span = "5m" in 1000..=86400000, since "0.1.0";
        /// The most tasks that one `subscriptions/listen` may follow.
        stream_tasks_max: u32 = "16" in 1..=1024, since "0.1.0";
        /// The most resources of servers behind that one session, or one `subscriptions/listen`, may subscribe to.
        subscriptions_max: u32 = "64" in 1..=4096, since "0.1.0";
        /// The most subscriptions to resources of all sessions and streams of one owner.
        subscriptions_owner_max: u32 = "512" in 1..=65536, since "0.1.0";
        /// The most subscriptions to resources of all sessions and streams together.
        subscriptions_total_max: u32 = "1024" in 1..=65536, since "0.1.0";
        /// How long a reader of a stream may stop reading before the stream is cut.
        slow_reader: Span = "30s" in 1000..=3600000, since "0.1.0";
        /// How long running work may go on after the server was told to stop.
        drain: Span = "30s" in 0..=86400000, since "0.1.0";
        /// How long a server that was started in the background stays when nobody is connected and no task is open.
        idle_exit: Span = "10m" in 100..=31536000000, since "0.1.0";
        /// Serve the local page.
        page: bool = "true", since "0.1.0";
    }
}

section! {
    /// How tasks live.
    Tasks in "tasks" {
        /// Offer the tasks extension. When false no task begins; those that exist can still be read and cancelled.
        enabled: bool = "true", since "0.1.0";
        /// How long a task is kept from its creation.
        ttl: Span = "7d" in 1000..=31536000000, since "0.1.0";
        /// The longest time to live that a caller or a tool may ask for.
        ttl_max: Span = "30d" in 1000..=31536000000, since "0.1.0";
        /// How long a task is kept after its time to live, so that its owner can read how it ended.
        expired_kept: Span = "1h" in 0..=31536000000, since "0.1.0";
        /// The most open tasks of one owner.
        open_max: u32 = "200" in 1..=10000000, since "0.1.0";
        /// The most calls of one owner that are held open without being tasks.
        held_max: u32 = "200" in 1..=100000, since "0.1.0";
        /// The most calls of all owners together that are held open without being tasks.
        held_total_max: u32 = "2000" in 1..=1000000, since "0.1.0";
        /// The most bytes that the held calls of one owner keep of what came with them (answers to questions that
        /// were not asked yet); those of all owners keep at most four times as many.
        held_bytes_max: Bytes = "16MiB" in 65536..=4294967296, since "0.1.0";
        /// How long a call is waited for before it becomes a task; `0s` is at once.
        promote_after: Span = "2s" in 0..=600000, since "0.1.0";
        /// How long a caller without a task waits, where its client wants no progress, before it is told that the
        /// work goes on. Where the caller's clients were seen to give up, the limit is learned from them instead.
        hold: Span = "25s" in 1000..=86400000, since "0.1.0";
        /// The same, where the client wants progress.
        hold_with_progress: Span = "4m" in 1000..=86400000, since "0.1.0";
        /// One limit for all callers without a task, in place of the two above and of what is learned.
        hold_max: Option<Span> = "" in 1000..=86400000, since "0.1.0";
        /// How long the result of a call whose caller left is given to an equal call.
        kept_for_join: Span = "1h" in 0..=86400000, since "0.1.0";
        /// List the tool `longhaul_wait`, with which a model waits for a task, sees it and cancels it.
        wait_tool: bool = "true", since "0.1.0";
        /// Whom the `output_schema` of a tool is listed to: `auto` (callers that take tasks, and everybody where the
        /// tool says `hold = "exact"`), `always` (everybody; the reply that the work goes on is then marked as an
        /// error, since clients refuse any other that does not fit) or `never`.
        show_output_schema: ShowSchema = "auto", since "0.1.0";
        /// How long `tasks/result` waits for the end of a task, where the client takes no stream.
        result_wait: Span = "30s" in 0..=600000, since "0.1.0";
        /// The shortest poll interval that is hinted.
        poll_min: Span = "500ms" in 50..=60000, since "0.1.0";
        /// The longest poll interval that is hinted while a task is younger than 15 minutes.
        poll_max: Span = "5s" in 50..=600000, since "0.1.0";
        /// The poll interval that is hinted from 15 minutes on.
        poll_slow: Span = "15s" in 50..=3600000, since "0.1.0";
        /// How many times in a row one caller may look at a task (`tasks/get`) before it has to keep to the hinted poll
        /// interval: four looks for each interval fill this up again. Who looks more often gets HTTP 429 and is hinted
        /// a longer interval. Waits and streams do not count.
        poll_burst: u32 = "200" in 20..=1000000000, since "0.1.0";
        /// How long a question stays open; without it, until the task's time to live ends.
        input_timeout: Option<Span> = "" in 1000..=31536000000, since "0.1.0";
        /// The most questions of one task that are open at once.
        questions_max: u32 = "16" in 1..=64, since "0.1.0";
        /// The most questions of one owner that were asked before their task exists, and the most requests for prompts
        /// and resources that wait for its answers.
        questions_before_max: u32 = "5" in 1..=100, since "0.1.0";
        /// How long a cancelled process may take to end after TERM before it is killed.
        grace: Span = "5s" in 0..=600000, since "0.1.0";
    }
}

section! {
    /// Where tasks are kept.
    Store in "store" {
        /// `sqlite`, `memory`, or the URL of a PostgreSQL database (`postgres://user@host/name`). A value
        /// `env:NAME` or `file:PATH` is read from there.
        url: String = "sqlite", since "0.1.0";
        /// The SQLite file; without it, `longhaul.db` in the state folder.
        path: Option<PathBuf> = "", since "0.1.0";
        /// Accept a SQLite file on a network file system, where its locks may not hold.
        allow_network_file_system: bool = "false", since "0.1.0";
    }
}

section! {
    /// What tools may send.
    Limits in "limits" {
        /// The largest result that is kept. Of a program's longer output the beginning and the end are kept; a server's longer result is refused.
        result_max: Bytes = "8MiB" in 4096..=67108864, since "0.1.0";
        /// The most output of one attempt that is kept at all; the rest is dropped, and the result says so.
        output_max: Bytes = "64MiB" in 4096..=1073741824, since "0.1.0";
        /// How much of a failed command's last stderr its result shows.
        stderr_tail: Bytes = "4KiB" in 0..=65536, since "0.1.0";
        /// The largest question, its form included.
        question_max: Bytes = "64KiB" in 1024..=65536, since "0.1.0";
        /// The most questions that one attempt may ask in all.
        asks_max: u32 = "1000" in 1..=10000, since "0.1.0";
        /// The most files that one result may name.
        files_max: u32 = "100" in 1..=10000, since "0.1.0";
        /// The largest file that is embedded in a result; a larger one is only named.
        file_max: Bytes = "1MiB" in 0..=8388608, since "0.1.0";
    }
}
