// Progress and log messages have no place on a listen stream (C-37).

import { EXTENSION, begin, check, listen, statuses } from './wire.mjs';

export default class {
  name = 'tasks-listen-progress';
  source = EXTENSION;
  description =
    'While a followed task reports progress the listen stream carries task notifications only: its progress is in statusMessage.';

  async run({ serverUrl }) {
    const taskId = await begin(serverUrl, 'slow_compute', { seconds: 1, label: 'listen-progress' });
    const { frames } = await listen(serverUrl, { taskIds: [taskId], toolsListChanged: false }, { id: 4741 });
    const wrong = frames.filter((frame) => ['notifications/progress', 'notifications/message'].includes(frame.method));
    return [
      check(
        'sep-2663-listen-no-progress',
        'No progress and no log message on the listen stream',
        statuses(frames).length === 0 ? ['nothing was told'] : wrong.map((frame) => `unexpected: ${frame.method}`),
      ),
    ];
  }
}
