// A `@modelcontextprotocol/sdk` 1.32 connection with its experimental tasks.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
    CallToolResultSchema,
    ElicitRequestSchema,
    TaskStatusNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";

import { equal, rig } from "./steps.mjs";

export const RELATED = "io.modelcontextprotocol/related-task";

export async function open() {
    const transport =
        rig.url === undefined
            ? new StdioClientTransport({ command: rig.command[0], args: rig.command.slice(1), stderr: "ignore" })
            : new StreamableHTTPClientTransport(rig.url);
    const client = new Client(
        { name: "longhaul-rig", version: "1.0.0" },
        { capabilities: { elicitation: { form: {} }, tasks: { list: {}, cancel: {} } }, enforceStrictCapabilities: true },
    );
    const told = [];
    const asked = [];
    client.setNotificationHandler(TaskStatusNotificationSchema, (note) => {
        told.push(note.params);
    });
    client.setRequestHandler(ElicitRequestSchema, async (request) => {
        asked.push(request.params._meta?.[RELATED]?.taskId);
        return { action: "accept", content: await rig.answered() };
    });
    await client.connect(transport);
    await client.listTools();
    const { tasks } = client.experimental;
    return {
        client,
        tasks,
        told,
        asked,
        result: (taskId) => tasks.getTaskResult(taskId, CallToolResultSchema),
        // Every message of the stream of one call.
        stream: async (name, args = {}) => {
            const messages = [];
            const params = { name, arguments: args };
            for await (const message of tasks.callToolStream(params, CallToolResultSchema, { task: { ttl: 600_000 } })) {
                messages.push(message);
            }
            return messages;
        },
        // Starts a task and leaves its stream alone.
        start: async (name, args = {}, options = {}) => {
            const params = { name, arguments: args };
            for await (const message of tasks.callToolStream(params, CallToolResultSchema, {
                task: { ttl: 600_000 },
                ...options,
            })) {
                if (message.type === "error") throw message.error;
                equal(message.type, "taskCreated");
                return message.task.taskId;
            }
        },
    };
}
