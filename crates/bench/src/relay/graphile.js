// `bench.js drain HOST USER JOBS BYTES` adds jobs, then does them all in one process, and prints how
// many it did in a second. `bench.js follow HOST USER` does what others add until its input ends,
// and prints how many it has done again and again.
"use strict";
const { Logger, run, runMigrations } = require("graphile-worker");
const { Pool } = require("pg");

const [mode, host, user] = process.argv.slice(2, 5);
const [jobs, bytes] = process.argv.slice(5).map(Number);
const logger = new Logger(() => () => {});
const worker = {
  concurrentJobs: 24,
  maxPoolSize: 12,
  pollInterval: 100,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

async function drain(pgPool) {
  const add = `SELECT count(graphile_worker.add_job(
      'publish', json_build_object('key', 'key-' || (number % 10000), 'text', repeat('x', $1))))
    FROM generate_series(1, $2::int) AS number`;
  await pgPool.query(add, [bytes, jobs]);
  await pgPool.query("VACUUM ANALYZE");
  await pgPool.query("CHECKPOINT");

  let done = 0;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const publish = async () => {
    done += 1;
    if (done === jobs) finish();
  };
  const begun = process.hrtime.bigint();
  const taskList = { publish };
  const runner = await run({ pgPool, logger, taskList, preset: { worker }, noHandleSignals: true });
  await finished;
  // What it has done counts when the database knows.
  await runner.stop();
  const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
  const left = await pgPool.query("SELECT count(*) AS count FROM graphile_worker._private_jobs");
  if (left.rows[0].count !== "0") throw new Error(`${left.rows[0].count} jobs are left`);
  console.log(`rate ${jobs / seconds}`);
}

async function follow(pgPool) {
  let done = 0;
  const taskList = { publish: async () => void (done += 1) };
  const runner = await run({ pgPool, logger, taskList, preset: { worker }, noHandleSignals: true });
  const teller = setInterval(() => console.log(`done ${done}`), 20);
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on("end", resolve));
  clearInterval(teller);
  await runner.stop();
}

async function main() {
  const pgPool = new Pool({ host, user, database: "postgres", max: 12 });
  pgPool.on("error", () => {});
  await runMigrations({ pgPool, logger });
  await (mode === "follow" ? follow(pgPool) : drain(pgPool));
  await pgPool.end();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error.message);
    process.exit(1);
  },
);
