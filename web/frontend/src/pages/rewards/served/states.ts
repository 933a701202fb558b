import type { Schemas } from "../../../api/client";
import { t } from "../../../i18n";

export type Endpoint = Schemas["EndpointReply"];

const COLOURS: Record<Endpoint["state"], string> = {
  starting: "blue",
  running: "blue",
  ready: "green",
  unreachable: "red",
  stopping: "yellow",
  stopped: "gray",
  failed: "red",
};

export function colourOf(state: Endpoint["state"]): string {
  return COLOURS[state];
}

export function stateInWords(state: Endpoint["state"]): string {
  const words: Record<Endpoint["state"], string> = {
    starting: t("loads its model"),
    running: t("running"),
    ready: t("ready"),
    unreachable: t("does not answer"),
    stopping: t("stopping"),
    stopped: t("stopped"),
    failed: t("failed"),
  };
  return words[state];
}

export function isOver(endpoint: Endpoint): boolean {
  return endpoint.state === "stopped" || endpoint.state === "failed";
}

/** Whether it is about to change, so that it is looked at often. */
export function changesSoon(endpoint: Endpoint): boolean {
  return endpoint.state === "starting" || endpoint.state === "stopping" || endpoint.swap?.state === "loading";
}
