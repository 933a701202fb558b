import access from "./access.json";
import annotate from "./annotate.json";
import app from "./app.json";
import curate from "./curate.json";
import data from "./data.json";
import home from "./home.json";
import jobs from "./jobs.json";
import queues from "./queues.json";
import rewards from "./rewards.json";
import runs from "./runs.json";

/** English text -> German. A text that several areas use stands in app.json. */
const catalogue: Record<string, string> = { ...access, ...annotate, ...app, ...curate, ...data, ...home, ...jobs, ...queues, ...rewards, ...runs };

export default catalogue;
