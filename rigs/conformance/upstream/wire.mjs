// One request of the stateless wire, and a reader of its event stream. Used by the scenarios only.

export const TASKS = 'io.modelcontextprotocol/tasks';
export const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';
export const DECLARED = { elicitation: {}, extensions: { [TASKS]: {} } };
const VERSION = '2026-07-28';

let nextId = 1;

function message(method, params, capabilities, id) {
  return {
    jsonrpc: '2.0',
    id: id ?? nextId++,
    method,
    params: {
      ...params,
      _meta: {
        'io.modelcontextprotocol/protocolVersion': VERSION,
        'io.modelcontextprotocol/clientInfo': { name: 'listen-scenarios', version: '1.0.0' },
        'io.modelcontextprotocol/clientCapabilities': capabilities,
        ...params?._meta,
      },
    },
  };
}

function post(url, body, signal) {
  const headers = {
    'Content-Type': 'application/json',
    Accept: 'application/json, text/event-stream',
    'MCP-Protocol-Version': VERSION,
    'Mcp-Method': body.method,
  };
  const name = body.params.name ?? body.params.taskId;
  if (name !== undefined) headers['Mcp-Name'] = name;
  return fetch(url, { method: 'POST', headers, body: JSON.stringify(body), signal });
}

/** Sends one request; returns the HTTP status and the JSON-RPC response. */
export async function request(url, method, params = {}, capabilities = DECLARED) {
  const body = message(method, params, capabilities);
  const response = await post(url, body, AbortSignal.timeout(15_000));
  if (!response.headers.get('content-type')?.includes('text/event-stream')) {
    return { status: response.status, ...(await response.json()) };
  }
  for await (const event of events(response)) {
    if (event.id === body.id) return { status: response.status, ...event };
  }
  throw new Error(`the stream of ${method} ended without a response`);
}

/** Sends one request and returns its result, or throws its error. */
export async function call(url, method, params, capabilities) {
  const reply = await request(url, method, params, capabilities);
  if (reply.error) throw new Error(`${method}: ${reply.error.code} ${reply.error.message}`);
  return reply.result;
}

/** Begins a task with a fixture tool and returns its id. */
export async function begin(url, name, args) {
  const result = await call(url, 'tools/call', { name, arguments: args });
  if (result.resultType !== 'task') throw new Error(`${name} did not create a task`);
  return result.taskId;
}

/**
 * Opens a subscription and collects what arrives until `enough(frames)` or the stream ends.
 * Returns the frames, and whether the server ended the stream.
 */
export async function listen(url, notifications, { id, enough = () => false, within = 10_000, during } = {}) {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), within);
  const body = message('subscriptions/listen', { notifications }, DECLARED, id);
  const frames = [];
  let ended = false;
  try {
    const response = await post(url, body, stop.signal);
    let begun = false;
    for await (const frame of events(response)) {
      frames.push(frame);
      if (!begun) {
        begun = true;
        await during?.();
      }
      if (enough(frames)) break;
    }
    ended = !enough(frames);
  } catch (error) {
    if (!stop.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
  return { id: body.id, frames, ended };
}

async function* events(response) {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of response.body) {
    rest += decoder.decode(chunk, { stream: true });
    const lines = rest.split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      const data = line.startsWith('data:') ? line.slice(5).trim() : '';
      if (data) yield JSON.parse(data);
    }
  }
}

/** One check, in the shape of the suite. */
export function check(id, description, errors, details) {
  return {
    id,
    name: id,
    description,
    status: errors.length === 0 ? 'SUCCESS' : 'FAILURE',
    timestamp: new Date().toISOString(),
    errorMessage: errors.length === 0 ? undefined : errors.join('; '),
    specReferences: [
      { id: 'SEP-2663', url: 'https://modelcontextprotocol.io/seps/2663-tasks-extension' },
      { id: 'SEP-2575', url: 'https://modelcontextprotocol.io/seps/2575-stateless-mcp' },
    ],
    details,
  };
}

export const EXTENSION = { extensionId: TASKS };
export const statuses = (frames) => frames.filter((frame) => frame.method === 'notifications/tasks');
