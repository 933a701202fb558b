import type { Schemas } from "../../../api/client";
import { t } from "../../../i18n";

type Reply = Schemas["AnnotationReply"];

/** Why there is no item for this person now: a title, and what it means. */
export function whyNothing({ empty, reason }: Pick<Reply, "empty" | "reason">): [string, string] {
  switch (empty) {
    case "closed":
      return [t("This queue is closed"), t("Nobody gets items of it any more. What was voted stays.")];
    case "waiting":
      return [t("Others have the rest before them"), t("An item that somebody passes on comes here by itself.")];
    case "paused":
      return [t("This queue is paused"), t("Who runs it will go on with it. Drafts stay in this browser.")];
    case "not_assigned":
      return [t("This queue is assigned to others"), t("You may look after it, but its items are not for you.")];
    case "failed":
      return [t("The qualification was not passed"), `${reason}. ${t("Who runs the queue can admit you all the same.")}`];
    case "held":
      return [t("This queue pauses for you"), `${reason}. ${t("Who runs the queue can let you go on.")}`];
    default:
      return [t("Nothing is left for you here"), t("You have seen everything that this queue asks of you.")];
  }
}
