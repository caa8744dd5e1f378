// What the command lines of Inspector 2.12 share: one process for each command, with a home folder of the run's own.

import { execFile } from "node:child_process";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const COMMAND_MAX_MS = 30_000;
const clients = path.join(path.dirname(createRequire(import.meta.url).resolve("@modelcontextprotocol/inspector/package.json")), "clients");

export const LAUNCHER = path.join(clients, "launcher/build/index.js");
export const MCPDO = path.join(clients, "mcpdo/build/mcp-bin.js");
export const home = path.join(process.env.LONGHAUL_CLIENT_FOLDER ?? "/tmp", "home");

mkdirSync(home, { recursive: true });

export const environment = { ...process.env, HOME: home, MCP_INSPECTOR_SECRET_STORE: "file" };

// Runs one command; resolves with its exit code and with what it printed as JSON, on output or else on standard error.
export function command(script, args) {
    return new Promise((resolve, reject) => {
        const options = { env: environment, timeout: COMMAND_MAX_MS };
        const child = execFile(process.execPath, [script, ...args], options, (error, output, complaint) => {
            if (error?.killed) {
                reject(new Error(`\`${args.join(" ")}\` did not end after ${COMMAND_MAX_MS / 1000} s`));
                return;
            }
            const complaints = complaint.split("\n").filter((line) => line.startsWith("{"));
            resolve({ code: error?.code ?? 0, said: parsed(output), error: parsed(complaints.at(-1) ?? "")?.error });
        });
        child.stdin.end();
    });
}

function parsed(text) {
    try {
        return JSON.parse(text);
    } catch {
        return undefined;
    }
}
