import { Text } from "@mantine/core";
import { useEffect, useState } from "react";

import { clock } from "../words";
import { t } from "../../../i18n";

/** Time spent on this item, while the page is in view. */
export function Timer({ seconds }: { seconds: () => number }) {
  const [elapsed, setShown] = useState(0);
  useEffect(() => {
    const tick = () => setShown(seconds());
    tick();
    const timer = setInterval(tick, 1000);
    return () => clearInterval(timer);
  }, [seconds]);
  return (
    <Text size="sm" className="dim" aria-label={t("Time on this item")} role="timer">
      {clock(elapsed)}
    </Text>
  );
}
