const GOING = "assay.first-hour";

/** Whether somebody follows the first hour in this browser: other pages then show the next step. */
export function firstHourGoesOn(): boolean {
  return localStorage.getItem(GOING) === "on";
}

export function beginFirstHour(): void {
  localStorage.setItem(GOING, "on");
}

export function leaveFirstHour(): void {
  localStorage.removeItem(GOING);
}
