// An authorization server (oidc-provider), and an MCP server of sessions that takes its tokens alone.
// Called by `login.py`. Prints one line of JSON with both addresses, then lives until its standard input ends.
import http from "node:http";
import { Provider } from "oidc-provider";

const ttl = Number(process.env.TTL ?? 8);
const calls = [];
let provider, resourceUrl, issuer;

const body = (request) =>
  new Promise((resolve) => {
    let text = "";
    request.on("data", (chunk) => (text += chunk));
    request.on("end", () => resolve(text));
  });

const resource = http.createServer(async (request, response) => {
  const origin = `http://127.0.0.1:${resource.address().port}`;
  if (request.url === "/.well-known/oauth-protected-resource/mcp") {
    response.setHeader("content-type", "application/json");
    return response.end(
      JSON.stringify({ resource: resourceUrl, authorization_servers: [issuer], scopes_supported: ["tools"] }),
    );
  }
  const token = (request.headers.authorization ?? "").replace(/^Bearer /, "");
  const known = token && (await provider.AccessToken.find(token));
  if (!known || known.isExpired || ![known.aud].flat().includes(resourceUrl)) {
    response.statusCode = 401;
    response.setHeader(
      "www-authenticate",
      `Bearer resource_metadata="${origin}/.well-known/oauth-protected-resource/mcp", scope="tools"`,
    );
    return response.end("{}");
  }
  if (request.method !== "POST") return response.writeHead(405).end();
  const message = JSON.parse((await body(request)) || "{}");
  if (message.id === undefined) return response.writeHead(202).end();
  const results = {
    initialize: {
      protocolVersion: "2025-11-25",
      capabilities: { tools: {} },
      serverInfo: { name: "guarded", version: "1" },
    },
    "tools/list": { tools: [{ name: "count", inputSchema: { type: "object" } }] },
  };
  let result = results[message.method];
  if (message.method === "tools/call") {
    calls.push(token);
    result = { content: [{ type: "text", text: `call ${calls.length}` }] };
  }
  response.setHeader("content-type", "application/json");
  response.end(
    JSON.stringify(
      result
        ? { jsonrpc: "2.0", id: message.id, result }
        : { jsonrpc: "2.0", id: message.id, error: { code: -32601, message: "no such method" } },
    ),
  );
});
await new Promise((resolve) => resource.listen(0, "127.0.0.1", resolve));
resourceUrl = `http://127.0.0.1:${resource.address().port}/mcp`;

const front = http.createServer((request, response) => provider.callback()(request, response));
await new Promise((resolve) => front.listen(0, "127.0.0.1", resolve));
issuer = `http://127.0.0.1:${front.address().port}`;
provider = new Provider(issuer, {
  scopes: ["openid", "offline_access", "tools"],
  findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: () => true,
  ttl: { AccessToken: ttl },
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resourceUrl,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({ scope: "tools", audience: resourceUrl, accessTokenFormat: "opaque" }),
    },
  },
});
console.log(JSON.stringify({ issuer, resource: resourceUrl }));
process.stdin.on("end", () => process.exit(0)).resume();
