// `@modelcontextprotocol/client` 2.4: `listen()` with `taskIds`. It has no tasks of its own, so they are asked for below it.

import { z } from "zod";

import { ask, connect } from "./modern.mjs";
import { pairing } from "./pair.mjs";
import { UNKNOWN, deepEqual, equal, main, ok, refused, rig, until } from "./steps.mjs";

const ENDED = ["completed", "failed", "cancelled"];

async function open() {
    const { client, raw } = await connect("auto");
    equal(client.getProtocolEra(), "modern");
    const changes = [];
    client.setNotificationHandler("notifications/tasks", { params: z.looseObject({ taskId: z.string() }) }, (task) => {
        changes.push(task);
    });
    const get = (taskId) => ask(raw, "tasks/get", { taskId });
    return {
        client,
        changes,
        get,
        ask: (method, params) => ask(raw, method, params),
        start: async (name, args = {}) => {
            const created = await ask(raw, "tools/call", { name, arguments: args });
            equal(created.resultType, "task");
            return created.taskId;
        },
        ended: (taskId) => until(() => get(taskId), (task) => ENDED.includes(task.status)),
    };
}

const text = (task) => task.result.content[0].text;

async function first() {
    const peer = await open();
    await rig.step("call", async () => {
        const plain = await peer.client.callTool({ name: "echo", arguments: { words: "hello" } });
        equal(plain.content[0].text, "hello");
    });
    await rig.step("poll", async () => {
        const taskId = await peer.start("slow", { seconds: 2 });
        equal((await peer.get(taskId)).status, "working");
        equal((await peer.ended(taskId)).status, "completed");
    });
    await rig.step("result", async () => {
        const shaped = await peer.ended(await peer.start("shaped"));
        deepEqual(shaped.result.structuredContent, { files: 900, problems: 0 });
        const failed = await peer.ended(await peer.start("fails"));
        deepEqual([failed.status, failed.result.isError], ["completed", true]);
        const erred = await peer.ended(await peer.start("errs"));
        deepEqual([erred.status, erred.error.code], ["failed", -32050]);
    });
    await rig.step("question", async () => {
        const taskId = await peer.start("asks");
        const asked = await until(() => peer.get(taskId), (task) => task.status === "input_required");
        const [key] = Object.keys(asked.inputRequests);
        const inputResponses = { [key]: { action: "accept", content: { name: "Ada" } } };
        await peer.ask("tasks/update", { taskId, inputResponses });
        equal(text(await peer.ended(taskId)), "Hello, Ada!");
    });
    await rig.step("cancel", async () => {
        const taskId = await peer.start("endless");
        await peer.ask("tasks/cancel", { taskId });
        equal((await peer.ended(taskId)).status, "cancelled");
    });
    await rig.step("unknown id", async () => {
        for (const method of ["tasks/get", "tasks/cancel"]) await refused(peer.ask(method, { taskId: UNKNOWN }), -32602);
    });
    await rig.step("listen", async () => {
        const taskId = await peer.start("slow", { seconds: 1 });
        const subscription = await peer.client.listen({ taskIds: [taskId] });
        equal(await subscription.closed, "graceful");
        // The SDK hands a change on a little after it took it in.
        const heard = () => peer.changes.filter((task) => task.taskId === taskId);
        await until(heard, (changes) => changes.at(-1)?.status === "completed");
        ok(heard().some((task) => task.status === "working"), "no change was heard before the last");
        equal(text(heard().at(-1)), "worked for 1 s");
    });
    await rig.step("new connection", async () => {
        const taskId = await peer.start("slow", { seconds: 1 });
        const other = await open();
        equal(text(await other.ended(taskId)), "worked for 1 s");
        await other.client.close();
    });
    const finished = await peer.start("slow", { seconds: 0.1 });
    await peer.ended(finished);
    await rig.leave({ finished, running: await peer.start("outlives") });
}

async function later() {
    const peer = await open();
    await rig.step("restart", async () => {
        equal(text(await peer.ended(rig.given.finished)), "worked for 0.1 s");
        equal(text(await peer.ended(rig.given.running)), "done at attempt 2");
    });
    await peer.client.close();
}

const pair = pairing(async () => {
    const peer = await open();
    const update = async (task) => {
        const answers = Object.keys(task.inputRequests).map((key) => [key, { action: "accept", content: rig.answer }]);
        await peer.ask("tasks/update", { taskId: task.taskId, inputResponses: Object.fromEntries(answers) });
    };
    return {
        call: async (name, args) => (await peer.client.callTool({ name, arguments: args })).content[0].text,
        start: peer.start,
        status: async (taskId) => (await peer.get(taskId)).status,
        async ended(taskId) {
            for (;;) {
                const task = await until(() => peer.get(taskId), ({ status }) => status !== "working");
                if (task.status !== "input_required") return { status: task.status, text: saying(task) };
                await update(task);
            }
        },
        cancel: (taskId) => peer.ask("tasks/cancel", { taskId }),
    };
});

const saying = (task) => task.result?.content[0].text ?? task.error?.message ?? task.statusMessage;

await main({ first, later, ...pair });
