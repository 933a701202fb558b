import { Alert, Stack, Text } from "@mantine/core";
import { IconClockPause } from "@tabler/icons-react";
import type { UseQueryResult } from "@tanstack/react-query";
import { useEffect, useState, type ReactNode } from "react";

import { Problem } from "../../../api/problems";
import { Failure, Waiting } from "../../../components/States";
import { t } from "../../../i18n";

/**
 * What a query brought. A stage holds the store for moments: then that is said, the query tries again by itself, and
 * what was loaded before stays.
 */
export function Loaded<T>({ query, children }: { query: UseQueryResult<T>; children: (data: T) => ReactNode }) {
  const problem = query.failureReason ?? query.error;
  if (query.data === undefined) return problem == null ? <SlowWaiting /> : <Failure error={problem} />;
  return (
    <Stack gap="sm">
      {problem != null && <Held problem={problem} />}
      {children(query.data)}
    </Stack>
  );
}

const LONG_MS = 1000;

/** At a million comparisons a first look takes seconds; the server keeps what it found until the store changes. */
function SlowWaiting() {
  const [long, setLong] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLong(true), LONG_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <>
      <Waiting what={t("Looking through the store")} />
      {long && (
        <Text size="sm" className="dim" ta="center">
          {t("Looking through the whole store. With many comparisons this takes some seconds, and again after something has changed.")}
        </Text>
      )}
    </>
  );
}

function Held({ problem }: { problem: Error }) {
  if (!(problem instanceof Problem) || !problem.passing) return <Failure error={problem} />;
  return (
    <Alert color="yellow" icon={<IconClockPause size={18} />} role="status" py={6} classNames={{ message: "sentence" }}>
      {t("{{message}}. Shown is what was loaded before; trying again by itself.", { message: problem.message })}
    </Alert>
  );
}
