// A session begins with initialize, is named on every request, and ends.

import { Scenario, VERSION, check, differs } from './session.mjs';

const TRANSPORT = 'basic/transports';

export default class extends Scenario {
  name = 'tasks-2025-sessions';
  description =
    'A session id is visible ASCII and unguessable. Requests without it are HTTP 400, with an unknown or ended one 404. ' +
    'An unknown protocol version in the header is 400. A version that the server does not know is answered with one it knows.';

  async judge({ open }) {
    const session = await open();
    const other = await open();
    return [
      check('tasks-2025-session-id', 'Session ids are visible ASCII, long and different', ids(session.id, other.id), TRANSPORT),
      check('tasks-2025-session-missing', 'A request without its session id is HTTP 400', await status(session, { 'MCP-Session-Id': undefined }, 400), TRANSPORT),
      check('tasks-2025-session-unknown', 'A request of an unknown session is HTTP 404', await status(session, { 'MCP-Session-Id': 'no-such-session' }, 404), TRANSPORT),
      check('tasks-2025-version-header', 'An unknown protocol version in the header is HTTP 400', await status(session, { 'MCP-Protocol-Version': '1999-01-01' }, 400), TRANSPORT),
      check('tasks-2025-version-absent', 'A request without the version header is served', await status(session, { 'MCP-Protocol-Version': undefined }, 200), TRANSPORT),
      check('tasks-2025-version-offered', 'An unknown version is answered with one that the server knows', await offered(open), 'basic/lifecycle'),
      check('tasks-2025-ping', 'ping is answered with an empty result', differs('the result', await session.call('ping'), {}), 'basic/utilities/ping'),
      check('tasks-2025-log-level', 'logging/setLevel takes a level, and refuses an unknown one with -32602', await levels(session), 'server/utilities/logging'),
      check('tasks-2025-log-filter', 'Log messages come from the level on that was asked for', await filtered(session), 'server/utilities/logging'),
      check('tasks-2025-accepted', 'A notification is HTTP 202 with an empty body', accepted(await session.notify('notifications/roots/list_changed')), TRANSPORT),
      check('tasks-2025-malformed', 'A body that is no JSON-RPC message is HTTP 400', await malformed(session), TRANSPORT),
      check('tasks-2025-streams-ended', 'The streams of an ended session end with it', await streamsEnded(await open()), TRANSPORT),
      check('tasks-2025-session-ended', 'DELETE ends the session, and only that one', await ended(session, other), TRANSPORT),
    ];
  }
}

function ids(one, other) {
  const errors = [];
  for (const id of [one, other]) {
    if (!/^[\x21-\x7E]{16,}$/.test(id ?? '')) errors.push(`the session id is ${JSON.stringify(id)}`);
  }
  if (one === other) errors.push('two sessions have one id');
  return errors;
}

async function status(session, headers, wanted) {
  const { exchange } = await session.request('tools/list', {}, { headers });
  return differs('the status', exchange.status, wanted);
}

async function offered(open) {
  const session = await open({ version: '1999-01-01', initialized: false });
  return /^\d{4}-\d\d-\d\d$/.test(session.version) && session.version !== '1999-01-01' ? [] : [`it offers ${session.version}`];
}

async function levels(session) {
  const good = await session.request('logging/setLevel', { level: 'warning' });
  const bad = await session.request('logging/setLevel', { level: 'shouting' });
  const errors = [];
  if (!session.server.capabilities.logging) return [];
  if (!good.result || Object.keys(good.result).length > 0) errors.push(`a good level: ${JSON.stringify(good.result ?? good.error)}`);
  if (bad.error?.code !== -32602) errors.push(`a bad level: ${JSON.stringify(bad.result ?? bad.error)}`);
  return errors;
}

async function filtered(session) {
  if (!session.server.capabilities.logging) return [];
  const errors = [];
  for (const [level, wanted] of [['debug', 3], ['error', 0]]) {
    await session.call('logging/setLevel', { level });
    const call = await session.start('tools/call', { name: 'test_tool_with_logging', arguments: {} });
    await call.response();
    const told = call.frames.filter((frame) => frame.method === 'notifications/message').length;
    if (told !== wanted) errors.push(`${told} messages at level ${level}, expected ${wanted}`);
  }
  return errors;
}

function accepted({ status, text }) {
  return [...differs('the status', status, 202), ...(text.trim() === '' || text === 'null' ? [] : [`the body is ${text}`])];
}

async function malformed(session) {
  const errors = [];
  for (const body of ['{"jsonrpc":"2.0",', '[1,2]', '{"id":1}']) {
    const { status } = await session.post(body);
    if (status !== 400) errors.push(`${body}: HTTP ${status}`);
  }
  return errors;
}

async function streamsEnded(session) {
  const get = await session.listen();
  const ended = await session.end();
  if (get.status !== 200 || ended === 405) return [];
  await get.until(() => false, 3_000);
  return get.ended ? [] : ['its GET stream is still open'];
}

async function ended(session, other) {
  const ended = await session.end();
  if (ended === 405) return [];
  const errors = [];
  if (ended < 200 || ended > 299) errors.push(`DELETE: HTTP ${ended}`);
  const { exchange } = await session.request('tools/list', {});
  if (exchange.status !== 404) errors.push(`after DELETE: HTTP ${exchange.status}`);
  const second = await session.end();
  if (second !== 404) errors.push(`the second DELETE: HTTP ${second}`);
  const alive = await other.request('ping');
  if (!alive.result || other.version !== VERSION) errors.push('the other session does not answer any more');
  return errors;
}
