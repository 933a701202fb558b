import { Title } from "@mantine/core";

/** The area Access. */
export default function AccessPage() {
  return <Title order={1}>Access</Title>;
}
