import { notifications } from "@mantine/notifications";

import { t } from "../../../i18n";

/** An item's address, for somebody who works at the same queue; shown where the browser does not copy (without TLS). */
export async function copyLink(queue: string, number: number): Promise<void> {
  const address = `${window.location.origin}/annotate/queue/${encodeURIComponent(queue)}?item=${number}`;
  try {
    await navigator.clipboard.writeText(address);
    notifications.show({ color: "teal", message: t("The link to this item is copied.") });
  } catch {
    notifications.show({ message: t("The link to this item: {{address}}", { address }), autoClose: false });
  }
}
