// A `@modelcontextprotocol/client` connection, and the requests that its codecs do not know, sent below them.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { rig } from "./steps.mjs";

export const INFO = { name: "longhaul-rig", version: "1.0.0" };
export const TASKS = "io.modelcontextprotocol/tasks";
export const CAPABILITIES = { elicitation: { form: {} }, extensions: { [TASKS]: {} } };

export async function connect(mode) {
    const transport =
        rig.url === undefined
            ? new StdioClientTransport({ command: rig.command[0], args: rig.command.slice(1), stderr: "ignore" })
            : new StreamableHTTPClientTransport(rig.url);
    const client = new Client(INFO, { capabilities: CAPABILITIES, versionNegotiation: { mode } });
    await client.connect(transport);
    return { client, raw: below(client.transport) };
}

// Sends a request with an id of our own, and takes its answer before the SDK sees it.
function below(transport) {
    const waiting = new Map();
    const onmessage = transport.onmessage;
    let count = 0;
    transport.onmessage = (message, extra) => {
        const resolve = waiting.get(message.id);
        if (resolve === undefined || message.method !== undefined) {
            onmessage?.(message, extra);
            return;
        }
        waiting.delete(message.id);
        resolve(message.error === undefined ? { kind: "result", result: message.result } : { kind: "error", error: message.error });
    };
    return (request, options = {}) =>
        new Promise((resolve, reject) => {
            count += 1;
            const id = `below-${count}`;
            waiting.set(id, resolve);
            options.signal?.addEventListener("abort", () => reject(options.signal.reason), { once: true });
            transport.send({ ...request, jsonrpc: "2.0", id }, { headers: options.context?.headers }).catch((error) => {
                waiting.delete(id);
                reject(error);
            });
        });
}

// One request of the 2026 generation, with all that its `_meta` must say.
export async function ask(raw, method, params) {
    const _meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": INFO,
        "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
    };
    const answer = await raw({ method, params: { ...params, _meta } });
    if (answer.kind === "error") throw Object.assign(new Error(answer.error.message), answer.error);
    return answer.result;
}
