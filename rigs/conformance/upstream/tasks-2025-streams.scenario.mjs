// One message goes to one stream, events have ids of their own, and a broken stream is resumed.

import { Scenario, check, pause, terminal } from './session.mjs';

const PAGE = 'basic/transports';

export default class extends Scenario {
  name = 'tasks-2025-streams';
  description =
    'A stream that can be resumed begins with an event that has an id and no data. Event ids are unique in the session. A GET ' +
    'with Last-Event-ID continues that stream and no other. No message is sent on two streams. A dropped stream stops no task.';

  async judge({ open }) {
    const session = await open();
    const get = await session.listen();
    const streaming = get.status === 200;
    const task = await session.begin('slow_compute', { seconds: 4, label: 'streams' });
    const dropped = await session.start('tasks/result', { taskId: task.taskId });
    const beside = await session.begin('slow_compute', { seconds: 2, label: 'beside' });
    const whole = await session.start('tasks/result', { taskId: beside.taskId });
    await pause(300);
    const last = dropped.events.findLast((event) => event.id)?.id;
    await dropped.interrupt();
    const resumed = last === undefined ? undefined : await session.listen({ 'Last-Event-ID': last });
    const seen = await session.poll(task.taskId, terminal);
    const told = await resumed?.until((frame) => frame.id === dropped.id, 5_000);
    await whole.response(5_000);
    return [
      check('tasks-2025-get-stream', 'GET is an event stream or HTTP 405', got(get), PAGE),
      check('tasks-2025-get-accept', 'GET of something else than an event stream is refused', await refusing(session), PAGE),
      check('tasks-2025-primed', 'A stream with event ids begins with an id and no data', primed(dropped), PAGE),
      check('tasks-2025-event-ids', 'No event id is used twice in the session', unique([get, dropped, whole, resumed]), PAGE),
      check('tasks-2025-resumed', 'The resumed stream brings the response that its request waits for', last === undefined || told?.result ? [] : ['the response did not come'], PAGE),
      check('tasks-2025-resumed-only', 'The resumed stream carries nothing of another stream', strangers(resumed, dropped.id), PAGE),
      check('tasks-2025-response-place', 'No response is sent on a GET stream that resumes nothing', responses(get), PAGE),
      check('tasks-2025-one-stream', 'No message is sent on two streams', twice([get, whole]), PAGE),
      check('tasks-2025-dropped', 'A dropped stream leaves its task alone', seen.at(-1).status === 'completed' ? [] : [`the task is ${seen.at(-1).status}`]),
      check('tasks-2025-second-get', 'A second GET stream is refused, or each message comes on one of the two', await second(await open()), PAGE),
      check('tasks-2025-notices', 'The GET stream stays open while the session lives', streaming && get.ended ? ['it ended'] : [], PAGE),
    ];
  }
}

function got(get) {
  const well = get.status === 405 || (get.status === 200 && get.type.includes('text/event-stream'));
  return well ? [] : [`HTTP ${get.status}, ${get.type}`];
}

async function refusing(session) {
  const exchange = await session.listen({ Accept: 'application/json' });
  return exchange.status >= 400 && exchange.status < 500 ? [] : [`HTTP ${exchange.status}`];
}

function primed(exchange) {
  const [first] = exchange.events;
  if (!exchange.events.some((event) => event.id)) return [];
  return first.id && !first.data ? [] : [`the first event is ${JSON.stringify(first)}`];
}

function unique(exchanges) {
  const ids = exchanges.filter(Boolean).flatMap((exchange) => exchange.events.map((event) => event.id).filter(Boolean));
  const again = ids.filter((id, place) => ids.indexOf(id) !== place);
  return again.map((id) => `${id} is used twice`);
}

function strangers(resumed, id) {
  if (!resumed) return [];
  const foreign = resumed.frames.filter((frame) => !('method' in frame) && frame.id !== id);
  return foreign.map((frame) => `unexpected: ${JSON.stringify(frame)}`);
}

function responses(get) {
  return get.frames.filter((frame) => !('method' in frame)).map((frame) => `unexpected: ${JSON.stringify(frame)}`);
}

function twice([get, whole]) {
  const told = new Set(get.frames.map((frame) => JSON.stringify(frame)));
  return whole.frames.filter((frame) => told.has(JSON.stringify(frame))).map((frame) => `twice: ${JSON.stringify(frame)}`);
}

async function second(session) {
  const streams = [await session.listen(), await session.listen()].filter((stream) => stream.status === 200);
  const task = await session.begin('slow_compute', { seconds: 0, label: 'second' });
  await session.poll(task.taskId, terminal);
  await pause(300);
  const told = streams.flatMap((stream) => stream.frames.map((frame) => JSON.stringify(frame)));
  return told.length === new Set(told).size ? [] : ['a message came twice'];
}
