// `@modelcontextprotocol/sdk` 1.32.2 as an agent without tasks: `node ts.mjs JOB`. JOB is described in `run.py`, which
// starts this. It prints each turn as its model would read it, and leaves what it saw in the job's `report`.

import { readFileSync, writeFileSync } from "node:fs";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { AjvJsonSchemaValidator } from "@modelcontextprotocol/sdk/validation/ajv";

const job = JSON.parse(process.argv[2]);
const validate = new AjvJsonSchemaValidator().getValidator(JSON.parse(readFileSync(job.schema, "utf8")));
const WAIT = /^Wait for it: (longhaul_wait) (\{.*?\})/m;

function options() {
    const timeout = job.timeout * 1000;
    switch (job.mode) {
        case "none":
            return { timeout };
        case "reset":
            return { timeout, onprogress() {}, resetTimeoutOnProgress: true, maxTotalTimeout: 20 * timeout };
        case "fixed":
            return { timeout, onprogress() {} };
    }
}

function transport() {
    if (job.url !== undefined) {
        return new StreamableHTTPClientTransport(new URL(job.url));
    }
    const [command, ...args] = job.command;
    return new StdioClientTransport({ command, args, env: process.env, stderr: "ignore" });
}

// Calls the tool until its result is there, as a model does that reads nothing but the text.
async function agent(client, wanted) {
    const began = Date.now();
    const turns = [];
    let next = wanted;
    while (Date.now() - began < job.patience * 1000) {
        const call = `${next.name} ${JSON.stringify(next.arguments)}`;
        let result;
        let text;
        try {
            result = await client.callTool(next, undefined, options());
            text = result.content.map((block) => block.text).join("\n");
        } catch (error) {
            text = String(error.message);
        }
        const at = (Date.now() - began) / 1000;
        const goesOn = /^STILL RUNNING/.test(text);
        const turn = { at, call, text, goesOn, isError: result?.isError ?? false, structured: result?.structuredContent };
        turn.gaveUp = result === undefined;
        turns.push(turn);
        print(turns.length, turn);
        if (!turn.gaveUp && !goesOn) {
            return turns;
        }
        await new Promise((thought) => setTimeout(thought, job.think * 1000));
        const wait = job.follow === "wait" ? WAIT.exec(text) : null;
        next = wait === null ? wanted : { name: wait[1], arguments: JSON.parse(wait[2]) };
    }
    return turns;
}

function print(number, { at, call, text, isError, structured, gaveUp }) {
    console.log(`      calls ${call}`);
    const told = gaveUp ? `[the client gave up] ${text}` : text;
    console.log(`turn ${number} (${at.toFixed(0)} s)${isError ? " [isError]" : ""}: ${told.replaceAll("\n", "\n      ")}`);
    if (structured !== undefined) {
        console.log(`      structured ${JSON.stringify(structured)}`);
    }
}

const client = new Client({ name: "longhaul-rig", version: "1.0.0" });
await client.connect(transport());
const { tools } = await client.listTools();
const report = { seesSchema: tools.find((tool) => tool.name === job.tool).outputSchema !== undefined, calls: [] };
for (const seconds of job.seconds) {
    const turns = await agent(client, { name: job.tool, arguments: { seconds } });
    const last = turns.at(-1);
    report.calls.push({ seconds, turns, fits: validate(last.structured).valid });
    if (last.gaveUp || last.goesOn) {
        break;
    }
}
writeFileSync(job.report, JSON.stringify(report));
await client.close();
