import "./home.css";

import { useAllows } from "../../api/session";
import { OwnQueues } from "./OwnQueues";
import { WorkspaceHome } from "./WorkspaceHome";

/** Where people begin: what there is and what comes next; for annotators, their queues. */
export default function HomePage() {
  return useAllows("records") ? <WorkspaceHome /> : <OwnQueues />;
}
