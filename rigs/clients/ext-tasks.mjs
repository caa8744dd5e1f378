// `@modelcontextprotocol/ext-tasks` 0.2.2 on `@modelcontextprotocol/client` 2.4, in both generations.
// A task is handed over to a second connection by its serialized reference.

import { createTaskSessionFromClient, resultFromTaskOutcome, toolDeclarationFromMcpTool } from "@modelcontextprotocol/ext-tasks/client";

import { CAPABILITIES, INFO, connect } from "./modern.mjs";
import { pairing } from "./pair.mjs";
import { UNKNOWN, deepEqual, equal, main, match, ok, refused, rig, until } from "./steps.mjs";

const modern = rig.generation === "2026-07-28";

async function session() {
    const { client, raw } = await connect(modern ? "auto" : "legacy");
    const declared = (await client.listTools()).tools.map((tool) => [tool.name, tool]);
    const tasks = createTaskSessionFromClient(client, {
        endpointId: "longhaul-rig",
        rawDispatch: raw,
        v2RequestFraming: { protocolVersion: "2026-07-28", clientInfo: INFO, clientCapabilities: CAPABILITIES },
        onInputRequest: async (request) => {
            equal(request.kind, "elicitation");
            return { action: "accept", content: await rig.answered() };
        },
    });
    return { client, tasks, declared: new Map(declared) };
}

const text = (result) => result.content[0].text;

async function first() {
    const { tasks, declared } = await session();
    const start = async (name, args = {}) => {
        const declaration = toolDeclarationFromMcpTool(declared.get(name));
        const execution = await tasks.callTool(name, args, { declaration, task: { preference: "prefer", retentionMs: 600_000 } });
        equal(execution.kind, "task");
        return execution;
    };
    const outcome = async (name, args) => (await (await start(name, args)).settle()).outcome;

    await rig.step("call", async () => {
        const execution = await tasks.callTool("echo", { words: "hello" }, { task: { preference: "forbid" } });
        equal(execution.kind, "immediate");
        equal(text(resultFromTaskOutcome(await execution.result())), "hello");
    });
    await rig.step("poll", async () => {
        const execution = await start("slow", { seconds: 2 });
        const states = [];
        for await (const event of execution.updates()) if (event.type === "task") states.push(event.task.status);
        ok(states.includes("working") && states.at(-1) === "completed", `saw ${states}`);
    });
    await rig.step("result", async () => {
        equal(text(resultFromTaskOutcome(await outcome("slow", { seconds: 0.1 }))), "worked for 0.1 s");
        deepEqual(resultFromTaskOutcome(await outcome("shaped")).structuredContent, { files: 900, problems: 0 });
        const failed = await outcome("fails");
        if (failed.status === "completed") equal(failed.result.isError, true);
        else match(failed.error.message, /no such crate/);
        const erred = await outcome("errs");
        equal(erred.status, "failed");
        // In 2025-11-25 it does not ask for the error of a failed task: the status message is all that it has.
        match(erred.error.message, /the index is locked/);
        if (modern) equal(erred.error.code, -32050);
    });
    await rig.step("question", async () => {
        equal(text(resultFromTaskOutcome(await outcome("asks"))), "Hello, Ada!");
    });
    if (!modern) {
        await rig.step("list", async () => {
            const execution = await start("slow", { seconds: 0.1 });
            const { taskId } = execution.handle;
            await execution.settle();
            const found = [];
            let cursor;
            do {
                const page = await tasks.listTasks(cursor);
                found.push(...page.tasks.map((task) => task.taskId));
                cursor = page.nextCursor;
            } while (cursor !== undefined);
            ok(found.includes(taskId), "the task is not in the list");
        });
    }
    await rig.step("cancel", async () => {
        const execution = await start("endless");
        await execution.cancel();
        const task = tasks.task(execution.handle.taskId);
        await until(() => task.snapshot(), (seen) => seen.status === "cancelled");
    });
    await rig.step("unknown id", async () => {
        await refused(tasks.task(UNKNOWN).snapshot(), -32602);
        await refused(tasks.task(UNKNOWN).cancel(), -32602);
    });
    await rig.step("new connection", async () => {
        const execution = await start("slow", { seconds: 1 });
        let reference;
        await execution.handoff((found) => {
            reference = found;
        });
        const other = await session();
        const resumed = await other.tasks.resumeTask(reference);
        equal(text(resultFromTaskOutcome((await resumed.settle()).outcome)), "worked for 1 s");
        await other.tasks.close();
        await other.client.close();
    });
    const finished = await start("slow", { seconds: 0.1 });
    const references = { finished: finished.serializeReference() };
    await finished.settle();
    const running = await start("outlives");
    await running.handoff((found) => {
        references.running = found;
    });
    await rig.leave(references);
}

async function later() {
    const { tasks } = await session();
    await rig.step("restart", async () => {
        for (const [name, words] of [
            ["finished", "worked for 0.1 s"],
            ["running", "done at attempt 2"],
        ]) {
            const execution = await tasks.resumeTask(rig.given[name]);
            equal(text(resultFromTaskOutcome((await execution.settle()).outcome)), words);
        }
    });
}

const pair = pairing(async () => {
    const { tasks, declared } = await session();
    const open = new Map();
    const saying = ({ status, result, error }) => ({ status, text: error?.message ?? (result && text(result)) ?? "" });
    return {
        async call(name, args) {
            const execution = await tasks.callTool(name, args, { task: { preference: "forbid" } });
            return text(resultFromTaskOutcome(await execution.result()));
        },
        async start(name, args) {
            const declaration = toolDeclarationFromMcpTool(declared.get(name));
            const execution = await tasks.callTool(name, args, { declaration, task: { preference: "prefer", retentionMs: 600_000 } });
            equal(execution.kind, "task");
            const { taskId } = execution.handle;
            open.set(taskId, { execution, reference: execution.serializeReference() });
            return taskId;
        },
        status: async (taskId) => (await tasks.task(taskId).snapshot()).status,
        async ended(task) {
            const execution = open.get(task)?.execution ?? (await tasks.resumeTask(task));
            return saying((await execution.settle()).outcome);
        },
        cancel: (taskId) => open.get(taskId).execution.cancel(),
        keep: async (taskId) => {
            const { execution, reference } = open.get(taskId);
            // Handing over answers an open question with a cancel.
            if ((await tasks.task(taskId).snapshot()).status !== "working") return reference;
            let found;
            await execution.handoff((kept) => {
                found = kept;
            });
            return found;
        },
    };
});

await main({ first, later, ...pair });
