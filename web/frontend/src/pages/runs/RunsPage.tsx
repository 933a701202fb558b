import { Title } from "@mantine/core";

/** The area Runs. */
export default function RunsPage() {
  return <Title order={1}>Runs</Title>;
}
