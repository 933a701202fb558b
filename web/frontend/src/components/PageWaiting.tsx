import { Text } from "@mantine/core";
import { useEffect, useState } from "react";

import { t } from "../i18n";
import { Waiting } from "./States";

const SOON_MS = 2000;

/** A page's file is on its way; after two seconds it says what that may depend on. */
export function PageWaiting() {
  const [long, setLong] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLong(true), SOON_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <>
      <Waiting />
      {long && (
        <Text size="sm" className="dim" ta="center">
          {t("Still loading. If the server is away, this goes on by itself when it is back.")}
        </Text>
      )}
    </>
  );
}
