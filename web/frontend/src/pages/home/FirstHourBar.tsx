import "./home.css";

import { Anchor, Button, CloseButton, Group, Text } from "@mantine/core";
import { useState } from "react";
import { Link, useLocation } from "react-router";

import { useAllows } from "../../api/session";
import { t } from "../../i18n";
import { useFirstHour } from "./firstHour";
import { leaveFirstHour } from "./following";
import { useHome, type Figures } from "./useHome";

/** The next step of the first hour, above every page, for as long as somebody follows it. */
export default function FirstHourBar() {
  const { pathname } = useLocation();
  const [left, setLeft] = useState(false);
  const shown = useAllows("curate") && !left && pathname !== "/first-hour" && pathname !== "/";
  const home = useHome(shown);
  if (!shown || home.data?.figures == null) return null;
  const close = () => {
    leaveFirstHour();
    setLeft(true);
  };
  return <Bar figures={home.data.figures} onClose={close} />;
}

function Bar({ figures, onClose }: { figures: Figures; onClose: () => void }) {
  const { steps, next, leave } = useFirstHour(figures);
  const { pathname, search } = useLocation();
  const at = next === null ? steps.length : steps.indexOf(next) + 1;
  return (
    <Group component="aside" className="first-hour-bar" justify="space-between" wrap="nowrap" gap="sm" aria-label={t("The first hour")}>
      <Group gap="sm">
        <Anchor component={Link} to="/first-hour" size="sm">
          {t("The first hour, {{step}} of {{steps}}", { step: at, steps: steps.length })}
        </Anchor>
        <Text size="sm">{next === null ? t("That was all of it") : next.title}</Text>
      </Group>
      <Group gap="xs" wrap="nowrap">
        {next !== null && next.to !== pathname + search && (
          <Button component={Link} to={next.to} size="compact-sm" onClick={() => leave(next.key)}>
            {next.action}
          </Button>
        )}
        <CloseButton size="sm" onClick={onClose} aria-label={t("Leave the first hour")} />
      </Group>
    </Group>
  );
}
