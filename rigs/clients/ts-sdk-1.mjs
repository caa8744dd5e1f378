// `@modelcontextprotocol/sdk` 1.32.2 with its experimental tasks. It never asks for the result of a failed task.

import { RELATED, open } from "./legacy.mjs";
import { pairing } from "./pair.mjs";
import { UNKNOWN, deepEqual, equal, main, match, ok, refused, rig, until } from "./steps.mjs";

const text = (result) => result.content[0].text;

async function first() {
    const peer = await open();
    await rig.step("call", async () => {
        equal(text(await peer.client.callTool({ name: "echo", arguments: { words: "hello" } })), "hello");
        const shaped = await peer.client.callTool({ name: "shaped", arguments: {} });
        deepEqual(shaped.structuredContent, { files: 900, problems: 0 });
    });
    await rig.step("poll", async () => {
        const taskId = await peer.start("slow", { seconds: 2 });
        equal((await peer.tasks.getTask(taskId)).status, "working");
        await until(() => peer.tasks.getTask(taskId), (task) => task.status === "completed");
    });
    await rig.step("stream", async () => {
        const messages = await peer.stream("slow", { seconds: 1 });
        deepEqual([messages[0].type, messages.at(-1).type], ["taskCreated", "result"]);
        equal(text(messages.at(-1).result), "worked for 1 s");
        ok(messages.some((message) => message.type === "taskStatus"), "no status was polled");
    });
    await rig.step("progress", async () => {
        const heard = [];
        const onprogress = (progress) => heard.push(progress.progress);
        const taskId = await peer.start("slow", { seconds: 2 }, { onprogress });
        await peer.result(taskId);
        ok(heard.length > 0 && heard.every((value, at) => at === 0 || value > heard[at - 1]), `heard ${heard}`);
    });
    await rig.step("result", async () => {
        const shaped = await peer.stream("shaped");
        deepEqual(shaped.at(-1).result?.structuredContent, { files: 900, problems: 0 });
        const failed = await peer.stream("fails");
        const { task } = failed.findLast((message) => message.type === "taskStatus");
        equal(task.status, "failed");
        match(task.statusMessage, /no such crate/);
        const result = await peer.result(task.taskId);
        equal(result.isError, true);
        equal(result._meta[RELATED].taskId, task.taskId);
        const erred = await peer.start("errs");
        await refused(peer.result(erred), -32050);
    });
    await rig.step("question", async () => {
        const messages = await peer.stream("asks");
        equal(text(messages.at(-1).result), "Hello, Ada!");
        deepEqual(peer.asked, [messages[0].task.taskId]);
    });
    await rig.step("list", async () => {
        const taskId = await peer.start("slow", { seconds: 0.1 });
        const found = [];
        let cursor;
        do {
            const page = await peer.tasks.listTasks(cursor);
            found.push(...page.tasks.map((task) => task.taskId));
            cursor = page.nextCursor;
        } while (cursor !== undefined);
        ok(found.includes(taskId), `not among ${found.length} tasks`);
        await refused(peer.tasks.listTasks("no such cursor"), -32602);
    });
    await rig.step("cancel", async () => {
        const taskId = await peer.start("endless");
        equal((await peer.tasks.cancelTask(taskId)).status, "cancelled");
        equal((await peer.tasks.getTask(taskId)).status, "cancelled");
        await refused(peer.tasks.cancelTask(taskId), -32602);
    });
    await rig.step("unknown id", async () => {
        await refused(peer.tasks.getTask(UNKNOWN), -32602);
        await refused(peer.result(UNKNOWN), -32602);
        await refused(peer.tasks.cancelTask(UNKNOWN), -32602);
    });
    await rig.step("notified", async () => {
        const taskId = await peer.start("slow", { seconds: 0.5 });
        await peer.result(taskId);
        const told = () => peer.told.filter((task) => task.taskId === taskId);
        await until(told, (changes) => changes.at(-1)?.status === "completed");
    });
    await rig.step("new connection", async () => {
        const taskId = await peer.start("slow", { seconds: 1 });
        const other = await open();
        equal(text(await other.result(taskId)), "worked for 1 s");
        await other.client.close();
    });
    const finished = await peer.start("slow", { seconds: 0.1 });
    await peer.result(finished);
    await rig.leave({ finished, running: await peer.start("outlives") });
}

async function later() {
    const peer = await open();
    await rig.step("restart", async () => {
        equal(text(await peer.result(rig.given.finished)), "worked for 0.1 s");
        equal(text(await peer.result(rig.given.running)), "done at attempt 2");
    });
    await peer.client.close();
}

const pair = pairing(async () => {
    const { client, tasks, start, result } = await open();
    return {
        call: async (name, args) => text(await client.callTool({ name, arguments: args })),
        start,
        status: async (taskId) => (await tasks.getTask(taskId)).status,
        async ended(taskId) {
            const told = await result(taskId).then(text, (error) => error.message);
            const { status, statusMessage } = await tasks.getTask(taskId);
            return { status, text: `${told} ${statusMessage ?? ""}` };
        },
        cancel: (taskId) => tasks.cancelTask(taskId),
    };
});

await main({ first, later, ...pair });
