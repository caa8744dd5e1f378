// A client of the 2025-11-25 wire, by hand: fetch and a reader of event streams, no SDK. Used by the tasks-2025 scenarios only.
//
// A `Session` is what `initialize` opened. An `Exchange` is one stream of frames: the reply to a POST, or a GET stream.
// Every frame that arrives is kept with the type it must have, and `valid` judges them all against the official schema.

import { problems } from './schema.mjs';

export const VERSION = '2025-11-25';
export const RELATED = 'io.modelcontextprotocol/related-task';
export const EVERYTHING = { elicitation: { form: {} }, sampling: {}, roots: {} };

const RESULTS = {
  initialize: 'InitializeResult',
  ping: 'EmptyResult',
  'logging/setLevel': 'EmptyResult',
  'tools/list': 'ListToolsResult',
  'tools/call': 'CallToolResult',
  'tasks/get': 'GetTaskResult',
  'tasks/result': 'CallToolResult',
  'tasks/list': 'ListTasksResult',
  'tasks/cancel': 'CancelTaskResult',
};

// Never the same id twice, not in two sessions and not in two runs at once: some servers know a stream by the id of its request alone.
let nextId = 1 + 1_000 * Math.floor(Math.random() * 1_000_000);

/** One stream of frames. `frames` and `events` grow while it is open. */
class Exchange {
  constructor(session, id, method) {
    this.session = session;
    this.id = id;
    this.method = method;
    this.frames = [];
    this.events = [];
    this.ended = false;
    this.stop = new AbortController();
    this.wakes = new Set();
  }

  async start(method, headers, body) {
    const response = await fetch(this.session.url, { method, headers, body, signal: this.stop.signal });
    this.status = response.status;
    this.headers = response.headers;
    this.type = response.headers.get('content-type') ?? '';
    this.finished = this.read(response);
    if (!this.type.includes('text/event-stream')) await this.finished;
    return this;
  }

  async read(response) {
    try {
      if (this.type.includes('text/event-stream')) {
        for await (const event of events(response.body)) this.take(event);
      } else {
        this.text = await response.text();
        if (this.text && this.type.includes('json')) this.take({ data: this.text });
      }
    } catch (error) {
      if (!this.stop.signal.aborted) this.error = error;
    }
    this.ended = true;
    this.wake();
  }

  take(event) {
    const at = Date.now();
    let frame;
    if (event.data) {
      frame = JSON.parse(event.data);
      this.frames.push(frame);
      this.session.saw(frame, this);
    }
    this.events.push({ ...event, frame, at });
    this.wake();
  }

  wake() {
    for (const wake of this.wakes) wake();
  }

  /** The first frame that `wanted` accepts, now or until the stream ends or the time is over. */
  async until(wanted, within = 10_000) {
    const end = Date.now() + within;
    for (;;) {
      const found = this.frames.find(wanted);
      const left = end - Date.now();
      if (found || this.ended || left <= 0) return found;
      await new Promise((resolve) => {
        const timer = setTimeout(done, left);
        const wakes = this.wakes;
        wakes.add(done);
        function done() {
          clearTimeout(timer);
          wakes.delete(done);
          resolve();
        }
      });
    }
  }

  /** The response to the request that opened this stream. */
  response(within) {
    return this.until((frame) => frame.id === this.id && !('method' in frame), within);
  }

  /** The first request of the server on this stream. */
  question(within = 5_000) {
    return this.until((frame) => 'method' in frame && 'id' in frame, within);
  }

  /** Drops the connection and waits as long as the server asked to, as a client does that comes back. */
  async interrupt() {
    await this.drop();
    const asked = this.events.findLast((event) => event.retry)?.retry;
    await pause(Number(asked ?? 200));
  }

  /** Drops the connection, as a client does that goes away. */
  async drop() {
    this.stop.abort();
    await this.finished;
  }
}

export class Session {
  /** A session after `initialize` and `notifications/initialized`. */
  static async open(url, { version = VERSION, capabilities = EVERYTHING, initialized = true } = {}) {
    const session = new Session(url);
    const params = { protocolVersion: version, capabilities, clientInfo: { name: 'tasks-2025-scenarios', version: '1.0.0' } };
    session.opening = await session.start('initialize', params);
    const reply = await session.opening.response();
    if (!reply?.result) throw new Error(`initialize: HTTP ${session.opening.status} ${JSON.stringify(reply)}`);
    session.id = session.opening.headers.get('mcp-session-id');
    session.version = reply.result.protocolVersion;
    session.server = reply.result;
    if (initialized) await session.notify('notifications/initialized');
    return session;
  }

  constructor(url) {
    this.url = url;
    this.seen = [];
    this.expected = new Map();
    this.open = new Set();
  }

  headers(more = {}) {
    const headers = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' };
    if (this.id) headers['MCP-Session-Id'] = this.id;
    if (this.version) headers['MCP-Protocol-Version'] = this.version;
    Object.assign(headers, more);
    return Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined));
  }

  /** POSTs one request and returns its stream as soon as the headers are there. */
  async start(method, params, { headers, id = nextId++ } = {}) {
    const body = { jsonrpc: '2.0', id, method, ...(params && { params }) };
    this.expected.set(id, method === 'tools/call' && params.task ? 'CreateTaskResult' : RESULTS[method]);
    const exchange = new Exchange(this, id, method);
    this.open.add(exchange);
    return exchange.start('POST', this.headers(headers), JSON.stringify(body));
  }

  /** POSTs one request and waits for its response. */
  async request(method, params, options) {
    const exchange = await this.start(method, params, options);
    const reply = await exchange.response(options?.within);
    return { status: exchange.status, exchange, ...reply };
  }

  /** The result of one request; its error is thrown. */
  async call(method, params) {
    const reply = await this.request(method, params);
    if (!reply.result) throw new Error(`${method}: HTTP ${reply.status} ${JSON.stringify(reply.error)}`);
    return reply.result;
  }

  /** Calls a tool as a task and returns the task. */
  async begin(name, args = {}, { task = { ttl: 600_000 }, _meta } = {}) {
    const result = await this.call('tools/call', { name, arguments: args, task, ...(_meta && { _meta }) });
    if (!result.task?.taskId) throw new Error(`${name} did not create a task: ${JSON.stringify(result)}`);
    return result.task;
  }

  get(taskId) {
    return this.call('tasks/get', { taskId });
  }

  /** Polls until `wanted(task)`, and returns every task that was seen on the way. */
  async poll(taskId, wanted, within = 10_000) {
    const end = Date.now() + within;
    const seen = [];
    for (;;) {
      seen.push(await this.get(taskId));
      if (wanted(seen.at(-1)) || Date.now() > end) return seen;
      await pause(100);
    }
  }

  /** Opens the GET stream. */
  async listen(headers) {
    const exchange = new Exchange(this);
    this.open.add(exchange);
    return exchange.start('GET', this.headers({ Accept: 'text/event-stream', 'Content-Type': undefined, ...headers }));
  }

  /** POSTs something that is no request; returns the HTTP status and the body. */
  async post(message, headers) {
    const response = await fetch(this.url, {
      method: 'POST',
      headers: this.headers(headers),
      body: typeof message === 'string' ? message : JSON.stringify(message),
    });
    return { status: response.status, text: await response.text() };
  }

  notify(method, params) {
    return this.post({ jsonrpc: '2.0', method, ...(params && { params }) });
  }

  /** Answers a question of the server. */
  answer(question, result) {
    const related = question.params?._meta?.[RELATED];
    const meta = related && { _meta: { [RELATED]: related } };
    return this.post({ jsonrpc: '2.0', id: question.id, result: { ...result, ...meta } });
  }

  async end() {
    return (await fetch(this.url, { method: 'DELETE', headers: this.headers() })).status;
  }

  /** Drops every stream that is still open. */
  async close() {
    await Promise.all([...this.open].map((exchange) => exchange.drop()));
  }

  saw(frame, exchange) {
    this.seen.push({ frame, type: this.type(frame), exchange });
  }

  type(frame) {
    if ('method' in frame) return 'id' in frame ? 'ServerRequest' : 'ServerNotification';
    return 'error' in frame ? 'JSONRPCErrorResponse' : this.expected.get(frame.id);
  }
}

/** Every message that these sessions saw, against the official schema: the results of tasks/result, or all others. */
function valid(sessions, results) {
  const wrong = sessions.flatMap((session) =>
    session.seen.flatMap(({ frame, type, exchange }) => {
      if (('result' in frame && exchange.method === 'tasks/result') !== results) return [];
      const [part, of] = 'result' in frame ? [frame.result, 'result of '] : [frame, ''];
      if (!type) return [`an answer that nobody asked for: ${JSON.stringify(frame)}`];
      return problems(type, part).map((problem) => `${of}${type}: ${problem}: ${JSON.stringify(frame)}`);
    }),
  );
  return [...new Set(wrong)];
}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const terminal = (task) => ['completed', 'failed', 'cancelled'].includes(task.status);
/** A task without its advice when to ask again, which may change with its age. */
export const unadvised = ({ pollInterval, ...task }) => task;
export const accept = (content) => ({ action: 'accept', content });

/** The first difference between two values, as text; nothing when they are equal. */
export function differs(what, got, wanted) {
  return JSON.stringify(got) === JSON.stringify(wanted)
    ? []
    : [`${what} is ${JSON.stringify(got)}, expected ${JSON.stringify(wanted)}`];
}

/** An error response with this code. */
export function refused(what, reply, code) {
  return reply.error?.code === code ? [] : [`${what}: HTTP ${reply.status} ${JSON.stringify(reply.error ?? reply.result)}`];
}

const SPEC = `https://modelcontextprotocol.io/specification/${VERSION}/`;

/** One check, in the shape of the suite. `page` is the part of the specification that says so. */
export function check(id, description, errors, page = 'basic/utilities/tasks', details) {
  return {
    id,
    name: id,
    description,
    status: errors.length === 0 ? 'SUCCESS' : 'FAILURE',
    timestamp: new Date().toISOString(),
    errorMessage: errors.length === 0 ? undefined : errors.join('; '),
    specReferences: [{ id: 'MCP-2025-11-25', url: SPEC + page }],
    details,
  };
}

/** What every scenario says of itself. */
export class Scenario {
  source = { introducedIn: VERSION, removedIn: '2026-07-28' };

  /** Runs `judge` with the sessions it opens; adds the check of all their messages. */
  async run({ serverUrl }) {
    const sessions = [];
    const open = async (options) => {
      const session = await Session.open(serverUrl, options);
      sessions.push(session);
      return session;
    };
    try {
      const checks = await this.judge({ open, serverUrl });
      checks.push(check(`${this.name}-messages`, 'Every message has the shape of the schema', valid(sessions, false), 'schema'));
      if (sessions.some((session) => session.seen.some(({ exchange }) => exchange.method === 'tasks/result'))) {
        checks.push(check(`${this.name}-results`, 'tasks/result returns a tool result', valid(sessions, true), 'schema'));
      }
      return checks;
    } finally {
      await Promise.all(sessions.map((session) => session.close()));
    }
  }
}

async function* events(body) {
  const decoder = new TextDecoder();
  let rest = '';
  let event = {};
  for await (const chunk of body) {
    rest += decoder.decode(chunk, { stream: true });
    const lines = rest.split(/\r\n|\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === '') {
        if (Object.keys(event).length > 0) yield event;
        event = {};
        continue;
      }
      const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
      if (field === 'data') event.data = 'data' in event ? `${event.data}\n${value}` : value;
      else if (field === 'id' || field === 'retry' || field === 'event') event[field] = value;
    }
  }
}
