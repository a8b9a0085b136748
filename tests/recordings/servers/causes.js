// A server whose answers wait for a cause that is known: as causes.c.
const { execFile, execFileSync } = require('child_process');
const { pbkdf2, pbkdf2Sync } = require('crypto');
const net = require('net');

const [cause, rounds] = [process.argv[2], Number(process.argv[3])];
const HELD = 200;

function crunchNumbers() {
  const until = Date.now() + HELD;
  let sink = 1;
  while (Date.now() < until)
    for (let i = 0; i < 100000; i++) sink = (sink * 31 + i) % 1000003;
  return sink;
}

const hash = ['password', 'salt', 800000, 64, 'sha512'];
const causes = {
  rest: (then) => setTimeout(then, HELD),
  work: (then) => then(crunchNumbers()),
  pool: (then) => pbkdf2(...hash, then),
  hash: (then) => then(pbkdf2Sync(...hash)),
  atomic: (then) => {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, HELD);
    then();
  },
  program: (then) => execFile('sleep', ['0.2'], then),
  'program-at-once': (then) => then(execFileSync('sleep', ['0.2'])),
};

const server = net.createServer((connection) => {
  let answered = 0;
  connection.on('data', () => causes[cause](() => {
    connection.write(Buffer.alloc(50));
    if (++answered < rounds) return;
    connection.end();
    server.close();
  }));
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
