import "@mantine/notifications/styles.css";

import { Notifications } from "@mantine/notifications";

export default function NotificationsAtTheCorner() {
  return <Notifications position="bottom-right" />;
}
