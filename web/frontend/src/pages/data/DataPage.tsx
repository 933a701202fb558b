import { Title } from "@mantine/core";

/** The area Data. */
export default function DataPage() {
  return <Title order={1}>Data</Title>;
}
