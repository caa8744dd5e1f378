// One client of each generation, each a real SDK, with the few calls that the scripts here need.

import { Client as Stateless, StreamableHTTPClientTransport as StatelessHttp } from "@modelcontextprotocol/client";
import { Client as Sessions } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as SessionsHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

// A client of the generation with sessions.
export async function sessions(url, name) {
    const client = new Sessions({ name, version: "1.0.0" }, { capabilities: {} });
    await client.connect(new SessionsHttp(new URL(url)));
    return client;
}

// A client of the generation without; it names the agent's run that its requests belong to.
export async function stateless(url, name) {
    const client = new Stateless(
        { name, version: "1.0.0" },
        { capabilities: {}, versionNegotiation: { mode: { pin: "2026-07-28" } } },
    );
    await client.connect(new StatelessHttp(new URL(url)));
    const callTool = client.callTool.bind(client);
    client.callTool = (params, ...rest) =>
        callTool({ ...params, _meta: { ...params._meta, "dev.longhaul/session": name } }, ...rest);
    return client;
}

// The texts of a result, as one.
export function text(result) {
    return result.content
        .filter((block) => block.type === "text")
        .map((block) => block.text)
        .join("\n");
}
