// `mcpdo` of Inspector 2.12: a daemon that keeps a connection, and one command for each step. It can follow, cancel and
// read a task whose id it is told, so the tasks are started by another client.

import { MCPDO, command } from "./inspector.mjs";
import { pairing } from "./pair.mjs";
import { UNKNOWN, deepEqual, equal, main, match, ok, rig, until } from "./steps.mjs";

const modern = rig.generation === "2026-07-28";
const name = rig.url.href;
const on = (...args) => command(MCPDO, ["--format", "json", "--connection", name, ...args]);
// The transport is said, because it is not guessed from the address of a toolset.
const connect = () =>
    command(MCPDO, ["--format", "json", "connect", name, "--transport", "http", "--era", modern ? "modern" : "legacy"]);
const disconnect = () => command(MCPDO, ["disconnect", name]);

// Starts tasks with the SDK of the generation.
async function starter() {
    if (modern) {
        const { ask, connect } = await import("./modern.mjs");
        const { raw } = await connect("auto");
        return async (tool, args = {}) => (await ask(raw, "tools/call", { name: tool, arguments: args })).taskId;
    }
    const { start } = await (await import("./legacy.mjs")).open();
    return start;
}

const get = async (taskId) => {
    const { said, error } = await on("tasks/get", taskId);
    if (said === undefined) throw new Error(error?.message);
    return said.task;
};
const text = (answer) => answer.said?.content[0].text;

async function first() {
    const start = await starter();
    equal((await connect()).said?.protocolEra, modern ? "modern" : "legacy");
    await rig.step("call", async () => {
        equal(text(await on("tools/call", "echo", "words:=hello")), "hello");
        equal(text(await on("tools/call", "slow", "seconds:=0.5", "--task")), "worked for 0.5 s");
    });
    await rig.step("poll", async () => {
        const endless = await start("endless");
        equal((await get(endless)).status, "working");
        await on("tasks/cancel", endless);
        const taskId = await start("slow", { seconds: 1 });
        await until(() => get(taskId), (task) => task.status === "completed");
    });
    await rig.step("result", async () => {
        const taskId = await start("shaped");
        await until(() => get(taskId), (task) => task.status === "completed");
        deepEqual((await on("tasks/result", taskId)).said?.structuredContent, { files: 900, problems: 0 });
        match((await on("tools/call", "fails", "--task")).error.message, /fails|no such crate/);
        match((await on("tools/call", "errs", "--task")).error.message, /the index is locked/);
    });
    await rig.step("question", async () => {
        const asked = await on("tools/call", "asks", "--task");
        const id = asked.said?.elicitationPending?.elicitationId;
        ok(id !== undefined, `no question: ${JSON.stringify(asked)}`);
        equal(text(await on("elicitation/respond", id, "name:=Ada")), "Hello, Ada!");
    });
    if (!modern) {
        await rig.step("list", async () => {
            const taskId = await start("slow", { seconds: 0.1 });
            const { tasks } = (await on("tasks/list")).said;
            ok(tasks.some((task) => task.taskId === taskId), `not among ${tasks.length} tasks`);
        });
    }
    await rig.step("cancel", async () => {
        const taskId = await start("endless");
        equal((await on("tasks/cancel", taskId)).said?.cancelled, true);
        await until(() => get(taskId), (task) => task.status === "cancelled");
    });
    await rig.step("unknown id", async () => {
        for (const method of ["tasks/get", "tasks/result", "tasks/cancel"]) {
            const { code, error } = await on(method, UNKNOWN);
            equal(code, 1);
            match(error.message, /not found/i);
        }
    });
    await rig.step("new connection", async () => {
        const taskId = await start("slow", { seconds: 1 });
        await disconnect();
        await connect();
        await until(() => get(taskId), (task) => task.status === "completed");
        equal(text(await on("tasks/result", taskId)), "worked for 1 s");
    });
    const finished = await start("slow", { seconds: 0.1 });
    await until(() => get(finished), (task) => task.status === "completed");
    const running = await start("outlives");
    await stop();
    await rig.leave({ finished, running });
}

async function later() {
    await connect();
    await rig.step("restart", async () => {
        equal(text(await on("tasks/result", rig.given.finished)), "worked for 0.1 s");
        await until(() => get(rig.given.running), (task) => task.status === "completed");
        equal(text(await on("tasks/result", rig.given.running)), "done at attempt 2");
    });
    await stop();
}

// The daemon is a process of its own.
async function stop() {
    await disconnect();
    await command(MCPDO, ["daemon", "stop"]);
}

const pair = pairing(async () => {
    const begin = await starter();
    equal((await connect()).said?.protocolEra, modern ? "modern" : "legacy");
    const saying = (answer) => text(answer) ?? `${answer.error?.message}`;
    return {
        call: async (tool, args) => saying(await on("tools/call", tool, JSON.stringify(args))),
        start: begin,
        status: async (taskId) => (await get(taskId)).status,
        async ended(taskId) {
            const task = await until(() => get(taskId), ({ status }) => ["completed", "failed", "cancelled"].includes(status));
            return { status: task.status, text: `${saying(await on("tasks/result", taskId))} ${task.statusMessage ?? ""}` };
        },
        async ask(tool, args) {
            const asked = await on("tools/call", tool, JSON.stringify(args), "--task");
            const id = asked.said?.elicitationPending?.elicitationId;
            ok(id !== undefined, `no question: ${JSON.stringify(asked)}`);
            return saying(await on("elicitation/respond", id, JSON.stringify(rig.answer)));
        },
        cancel: (taskId) => on("tasks/cancel", taskId),
        close: stop,
    };
});

await main({ first, later, ...pair });
