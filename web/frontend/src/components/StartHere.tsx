import { Button, Group, Text } from "@mantine/core";
import { Link } from "react-router";

import { useAllows } from "../api/session";
import { t } from "../i18n";

/** In place of what is not there yet: where it is begun. `actions`: addresses and their words, the usual one first. */
export function StartHere({ actions }: { actions: [to: string, label: string][] }) {
  if (!useAllows("curate")) return <Text size="sm">{t("A curator can begin that.")}</Text>;
  return (
    <Group gap="xs" justify="center" mt="xs">
      {actions.map(([to, label], n) => (
        <Button key={to} component={Link} to={to} size="compact-md" variant={n === 0 ? "filled" : "default"}>
          {label}
        </Button>
      ))}
    </Group>
  );
}
